"""Small records about the cluster itself (members, rules) that nodes keep beside the users' keys.

They are replicated state, changed by the log alone, but not keys: they have no revision, do not count for the quota,
and appear in no range, watch or digest of the users' data; the key APIs cannot change them. Thus a range over the whole
key space shows exactly the users' keys, and each revision is a change by a user, as in etcd.

A write names the versions that its decision is based on; if any of them has changed, it is refused as a whole. Thus
read, decide and write needs no lock, and replicas need not repeat the decision. The version of a record is the index of
the log entry that wrote it. The records are in META, under their own prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgpack

from palisade.base.key_text import key_text
from palisade.metastore.errors import InvalidRequest, StoreCorrupt, SystemConflict
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.requests import SystemWrite
from palisade.metastore.state import StoreState

PREFIX = b"system/"
END = b"system0"
NAME_BYTES_MAX = 128
VALUE_BYTES_MAX = 16 * 1024
RECORDS_MAX = 64
"""Of one write."""
ABSENT = 0
TERM = "@term"
"""A name among the expected records: the term of the entry. A leader whose decision is valid only during its term
expects its own term, so the decision is void under another leader."""


class SystemRecord(NamedTuple):
    """`version` is ABSENT for a record that does not exist, and then `value` is empty."""

    name: str
    version: int
    value: bytes


class SystemRecords:
    """All records, in memory: their number is that of the nodes. `version` is that of the newest change."""

    __slots__ = ("_records", "_state", "_tables", "version")

    def __init__(self, tables: OrderedMap, state: StoreState) -> None:
        self._tables = tables
        self._state = state
        self._records: dict[str, SystemRecord] = {}
        self.version = 0
        self.load()

    def load(self) -> None:
        self._records = {}
        for key, stored in self._tables.scan(Table.META, PREFIX, END):
            record = _decode(key, stored)
            self._records[record.name] = record
        self.version = max((record.version for record in self._records.values()), default=0)

    def get(self, name: str) -> SystemRecord:
        return self._records.get(name) or SystemRecord(name, ABSENT, b"")

    def with_prefix(self, prefix: str) -> Iterator[SystemRecord]:
        """In order of name."""
        return (self._records[name] for name in sorted(self._records) if name.startswith(prefix))

    def write(self, request: SystemWrite) -> int:
        """The number of records written: all, or none. Raises SystemConflict, InvalidRequest."""
        _check(request)
        for name, version in request.expected:
            found = self._state.term if name == TERM else self.get(name).version
            if found != version:
                raise SystemConflict(f"record {name} has version {found}, not {version}: read it again, then decide")
        for name, value in request.records:
            record = SystemRecord(name, self._state.index, value)
            self._records[name] = record
            self._tables.put(Table.META, PREFIX + name.encode(), msgpack.packb([record.version, value]))
            self.version = self._state.index
        return len(request.records)


def _check(request: SystemWrite) -> None:
    if not 1 <= len(request.records) <= RECORDS_MAX or len(request.expected) > RECORDS_MAX:
        raise InvalidRequest(f"a write of system records has 1 to {RECORDS_MAX} of them, not {len(request.records)}")
    for name, value in request.records:
        if not 1 <= len(name.encode()) <= NAME_BYTES_MAX or name == TERM:
            raise InvalidRequest(f"the name of system record {name[:64]!r} has to have 1 to {NAME_BYTES_MAX} bytes")
        if len(value) > VALUE_BYTES_MAX:
            raise InvalidRequest(f"system record {name} has {len(value)} bytes, the limit is {VALUE_BYTES_MAX}")


def _decode(key: bytes, stored: bytes) -> SystemRecord:
    try:
        version, value = msgpack.unpackb(stored)
        name = key[len(PREFIX) :].decode()
    except (ValueError, TypeError, msgpack.UnpackException):
        version, value, name = None, None, ""
    if type(version) is not int or type(value) is not bytes:
        raise StoreCorrupt(
            f"the system record {key_text(key)} is malformed: {key_text(stored)}. Let the node join again with an "
            "empty data directory, or restore a backup"
        )
    return SystemRecord(name, version, value)
