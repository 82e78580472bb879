"""Drives a MetaStore as the log does: one entry after the other, each with a stamp."""

from __future__ import annotations

from typing import Any

from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.digest_check import Divergence, verify
from palisade.metastore.limits import Limits, Retention
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.ordered_map import APPLIED_KEY, NoOwner, Table
from palisade.metastore.requests import Command, RequestId
from palisade.metastore.results import KeyValue
from palisade.metastore.state import CLOCK_KEY
from palisade.metastore.state_machine import MetaStore

Tables = dict[Table, dict[bytes, bytes]]


class Driver:
    """A replica under test. `clock_ms` is the stamp of the next entry; every entry advances it by 1 ms."""

    def __init__(
        self, tables: MemoryMap | None = None, limits: Limits | None = None, retention: Retention | None = None
    ) -> None:
        self.tables = tables if tables is not None else MemoryMap()
        self.limits = limits or Limits()
        self.retention = retention or Retention()
        self.store = MetaStore(self.tables, self.limits, self.retention)
        self.clock_ms = self.store.stamp(0.0, 0)[1]
        self.log: list[tuple[list[int], list[bytes]]] = []

    def batch(self, *commands: bytes) -> list[Any]:
        self.clock_ms += 1
        stamp = [1_700_000_000_000 + self.clock_ms, self.clock_ms]
        self.log.append((stamp, list(commands)))
        return self.apply(stamp, commands)

    def apply(self, stamp: list[int], commands: Any) -> list[Any]:
        return self.store.apply(self.store.applied[0] + 1, 1, stamp, commands)

    def wire(self, request: Command, request_id: RequestId | None = None) -> Any:
        return self.batch(encode_command(request, request_id))[0]

    def do(self, request: Command, request_id: RequestId | None = None) -> Any:
        """The result, or the refusal as an exception."""
        return decode_result(self.wire(request, request_id))

    def all(self, *requests: Command) -> list[Any]:
        """Several commands in one entry."""
        return self.batch(*(encode_command(request) for request in requests))

    def wait(self, elapsed_ms: int) -> None:
        self.clock_ms += elapsed_ms

    def value(self, key: bytes) -> bytes | None:
        found = self.store.get(key)
        return found.value if found else None

    def get(self, key: bytes) -> KeyValue:
        found = self.store.get(key)
        assert found is not None
        return found

    def collect_all(self) -> None:
        while self.store.collect(7):
            pass

    def restarted(self) -> Driver:
        """A new process over the same tables."""
        return Driver(opened_again(self.tables), self.limits, self.retention)

    def copied(self) -> Driver:
        """Another replica, restored from a copy of these tables."""
        return Driver(copy_of(self.tables), self.limits, self.retention)

    def findings(self) -> list[Divergence]:
        """The findings of a verification of the tables, as they would be saved."""
        self.tables.owner.saving()
        return list(verify(self.tables))

    def contents(self) -> Tables:
        """Every table; the applied index and the clock left out, which a refused command moves as well."""
        content = contents_of(self.tables)
        for key in (APPLIED_KEY, CLOCK_KEY):
            content[Table.META].pop(key, None)
        return content


def contents_of(tables: MemoryMap) -> Tables:
    tables.owner.saving()
    return {table: dict(tables.scan(table, b"", None)) for table in Table}


def opened_again(tables: MemoryMap) -> MemoryMap:
    """The same tables as a new process finds them: saved, and without a state machine."""
    tables.owner.saving()
    tables.owner = NoOwner()
    return tables


def copy_of(tables: MemoryMap) -> MemoryMap:
    copy = MemoryMap()
    for table, content in contents_of(tables).items():
        for key, value in content.items():
            copy.put(table, key, value)
    return copy
