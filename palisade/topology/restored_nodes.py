"""What a restore does to the records of nodes in a backup. Pure.

Their addresses are removed: a restored node would use them as seeds, and so reach the nodes of the original cluster if
that still runs, which have the same names and the same cluster name. The incarnations stay, so that none is issued
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from palisade.metastore.requests import SystemWrite
from palisade.metastore.system_records import RECORDS_MAX, SystemRecords
from palisade.topology.view import nodes_of


def without_addresses(records: SystemRecords) -> Iterator[SystemWrite]:
    """The writes that remove them."""
    nodes = [replace(node, addresses={}) for node in nodes_of(records) if node.addresses]
    for start in range(0, len(nodes), RECORDS_MAX):
        yield SystemWrite((), tuple((node.key, node.to_bytes()) for node in nodes[start : start + RECORDS_MAX]))
