"""Names of partitions and their keys in the metadata store. Pure.

    /catalog/partitions/<table>/<day>                a partition: rows, size, digest (`catalog/demo/entries.py`)
    /catalog/assignments/<node>/<table>/<day>        the node stores it: {"digest": ..., "size_bytes": ...}
    /catalog/assignments                             the last assignment: nodes, replicas, prefix

A name is validated before use, because it becomes a file name: it has exactly one slash and no dots.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from palisade.catalog.demo.entries import ROOT
from palisade.wire.segment_errors import BadPartition

PARTITIONS = f"{ROOT}partitions/".encode()
ASSIGNMENTS = f"{ROOT}assignments/".encode()
LAST_ASSIGNMENT = f"{ROOT}assignments".encode()
SIZE_BYTES_MAX = 64 << 20
"""Limit for one partition, which is held in memory while it is checked."""
NAME = re.compile(r"([a-z][a-z0-9_]{0,62})/(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))", re.ASCII)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
SHOWN = 80
TRASH = "trash/"
"""Subfolder for expired partitions before their removal."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition in one version."""

    digest: str
    size_bytes: int

    def __post_init__(self) -> None:
        """Raises BadPartition."""
        if type(self.digest) is not str or not DIGEST.fullmatch(self.digest):
            raise BadPartition(f"invalid digest {str(self.digest)[:SHOWN]!r}: expected 'sha256:' and 64 hex digits")
        if type(self.size_bytes) is not int or not 0 <= self.size_bytes <= SIZE_BYTES_MAX:
            raise BadPartition(f"invalid size {str(self.size_bytes)[:SHOWN]}: expected 0 to {SIZE_BYTES_MAX} bytes")

    def to_value(self) -> bytes:
        return json.dumps({"digest": self.digest, "size_bytes": self.size_bytes}, separators=(",", ":")).encode()


def checked_name(text: str) -> str:
    """`flights/2013-01-31`. Raises BadPartition."""
    if not NAME.fullmatch(text):
        raise BadPartition(f"invalid partition {text[:SHOWN]!r}: expected <table>/<day>, such as flights/2013-01-31")
    return text


def table_and_day(name: str) -> tuple[str, str]:
    table, _, day = name.partition("/")
    return table, day


def own_prefix(node: str) -> bytes:
    """Prefix of the node's assignments."""
    return ASSIGNMENTS + node.encode() + b"/"


def assignment_key(node: str, name: str) -> bytes:
    return own_prefix(node) + name.encode()


def name_below(prefix: bytes, key: bytes) -> str:
    """The partition in a key below the prefix. Raises BadPartition."""
    return checked_name(key.removeprefix(prefix).decode("utf-8", "backslashreplace"))


def wanted_of(value: bytes) -> Wanted:
    """Parses an assignment, or the catalog's record of a partition. Raises BadPartition."""
    try:
        record = json.loads(value)
        return Wanted(record["digest"], record["size_bytes"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadPartition(f"{value[:SHOWN]!r} has no valid digest and size_bytes: {error}") from None
