"""Records about the cluster itself, beside the users' keys (issue 3: the logical topology)."""

from __future__ import annotations

import pytest

from palisade.metastore.command_codec import decode_command, decode_result, encode_command
from palisade.metastore.errors import InvalidRequest, StoreCorrupt, SystemConflict
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import FROM_KEY, DeleteRange, Put, Range, SystemWrite, WatchRequest
from palisade.metastore.state_machine import MetaStore
from tests.support.meta_driver import opened_again


class World:
    def __init__(self) -> None:
        self.tables = MemoryMap()
        self.store = MetaStore(self.tables)
        self.store.lead(0.0, 0)
        self.index = 0

    def apply(self, *commands: object) -> object:
        """The result of the last one."""
        self.index += 1
        packed = [encode_command(command) for command in commands]  # type: ignore[arg-type]
        results = self.store.apply(self.index, 1, self.store.stamp(float(self.index), 0), packed)
        return decode_result(results[-1])


def write(*records: tuple[str, bytes], expected: tuple[tuple[str, int], ...] = ()) -> SystemWrite:
    return SystemWrite(expected, records)


def test_system_record_round_trips_with_the_entry_index_as_version() -> None:
    world = World()
    world.apply(write(("node/n1", b"a"), ("node/n2", b"b"), ("cluster", b"c")))
    assert world.store.system.get("node/n1") == ("node/n1", 1, b"a")
    assert [record.name for record in world.store.system.with_prefix("node/")] == ["node/n1", "node/n2"]
    assert world.store.system.get("node/n9").version == 0
    assert world.store.system.version == 1


def test_write_expecting_an_old_version_is_refused_as_a_whole() -> None:
    world = World()
    world.apply(write(("a", b"1"), expected=(("a", 0),)))
    with pytest.raises(SystemConflict, match="record a has version 1, not 0"):
        world.apply(write(("b", b"2"), ("a", b"2"), expected=(("a", 0),)))
    assert world.store.system.get("b").version == 0
    with pytest.raises(SystemConflict):
        world.apply(write(("a", b"2"), expected=(("a", 1),)), write(("a", b"3"), expected=(("a", 1),)))
    assert world.store.system.get("a").value == b"2"


def test_system_records_are_in_no_range_of_users() -> None:
    world = World()
    world.apply(Put(b"k", b"v"))
    before = (world.store.revision, world.store.key_count, world.store.size_bytes, world.store.digest())
    watch = world.store.watches.open(WatchRequest(b"\0", FROM_KEY, 1), lambda: None)
    watch.poll(100, 1 << 20)
    world.apply(write(("node/n1", b"a")))
    assert (world.store.revision, world.store.key_count, world.store.size_bytes, world.store.digest()) == before
    assert [kv.key for kv in world.store.range(Range(b"\0", FROM_KEY)).kvs] == [b"k"]
    assert watch.poll(100, 1 << 20) == ()
    world.apply(DeleteRange(b"\0", FROM_KEY))
    assert world.store.system.get("node/n1").value == b"a"


def test_system_records_survive_restart_and_snapshot() -> None:
    world = World()
    world.apply(write(("node/n1", b"a")))
    again = MetaStore(opened_again(world.tables))
    assert again.system.get("node/n1") == ("node/n1", 1, b"a")
    other = World()
    for key, value in world.tables.scan(Table.META, b"", None):
        other.tables.put(Table.META, key, value)
    other.store.reload()
    assert (other.store.system.get("node/n1").value, other.store.system.version) == (b"a", 1)


@pytest.mark.parametrize(
    "request_",
    [
        write(),
        write(("", b"")),
        write(("n" * 129, b"")),
        write(("n", bytes(16 * 1024 + 1))),
        write(*((str(number), b"") for number in range(65))),
    ],
)
def test_too_large_system_record_is_refused(request_: SystemWrite) -> None:
    with pytest.raises(InvalidRequest):
        World().apply(request_)


def test_damaged_system_record_is_never_served() -> None:
    world = World()
    world.tables.put(Table.META, b"system/node/n1", b"\xc1")
    with pytest.raises(StoreCorrupt, match="is malformed"):
        MetaStore(opened_again(world.tables))


def test_system_write_is_encoded_like_every_command() -> None:
    request = write(("a", b"1"), expected=(("a", 0), ("b", 7)))
    assert decode_command(encode_command(request)) == (request, None)
