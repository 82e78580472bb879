"""Names of partitions and where they stand in the meta storage. Pure.

    /catalog/partitions/<table>/<day>                what a partition is: rows, size, digest (`catalog/demo/entries.py`)
    /catalog/assignments/<node>/<table>/<day>        that node keeps a copy: {"digest": ..., "size_bytes": ...}
    /catalog/assignments                             who was assigned last: nodes, replicas, prefix

A name is checked before anything is made of it, since it becomes the name of a file: it has no slash but the one in the
middle, and no dots.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from catalog.demo.entries import ROOT
from node.partitions.errors import BadPartition

PARTITIONS = f"{ROOT}partitions/".encode()
ASSIGNMENTS = f"{ROOT}assignments/".encode()
LAST_ASSIGNMENT = f"{ROOT}assignments".encode()
SIZE_BYTES_MAX = 64 << 20
"""Of one partition: it is held in memory while it is checked."""
NAME = re.compile(r"([a-z][a-z0-9_]{0,62})/(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))", re.ASCII)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
SHOWN = 80
TRASH = "trash/"
"""What is past its time is here for a while, in the folder of the partitions."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition in one version."""

    digest: str
    size_bytes: int

    def __post_init__(self) -> None:
        """Raises BadPartition."""
        if type(self.digest) is not str or not DIGEST.fullmatch(self.digest):
            raise BadPartition(f"{str(self.digest)[:SHOWN]!r} is no digest: it is 'sha256:' and 64 hex digits")
        if type(self.size_bytes) is not int or not 0 <= self.size_bytes <= SIZE_BYTES_MAX:
            raise BadPartition(f"{str(self.size_bytes)[:SHOWN]} is no size: it is 0 to {SIZE_BYTES_MAX} bytes")

    def to_value(self) -> bytes:
        return json.dumps({"digest": self.digest, "size_bytes": self.size_bytes}, separators=(",", ":")).encode()


def checked_name(text: str) -> str:
    """`flights/2013-01-31`. Raises BadPartition."""
    if not NAME.fullmatch(text):
        raise BadPartition(f"{text[:SHOWN]!r} is no partition: it is <table>/<day>, such as flights/2013-01-31")
    return text


def table_and_day(name: str) -> tuple[str, str]:
    table, _, day = name.partition("/")
    return table, day


def own_prefix(node: str) -> bytes:
    """Below it is what is assigned to the node."""
    return ASSIGNMENTS + node.encode() + b"/"


def assignment_key(node: str, name: str) -> bytes:
    return own_prefix(node) + name.encode()


def name_below(prefix: bytes, key: bytes) -> str:
    """The partition that a key below the prefix is about. Raises BadPartition."""
    return checked_name(key.removeprefix(prefix).decode("utf-8", "backslashreplace"))


def wanted_of(value: bytes) -> Wanted:
    """What an assignment, or the catalog's own record of a partition, says. Raises BadPartition."""
    try:
        record = json.loads(value)
        return Wanted(record["digest"], record["size_bytes"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadPartition(f"{value[:SHOWN]!r} does not say digest and size_bytes: {error}") from None
