"""A replica that has installed a snapshot does with every later entry what its sender does: nothing in its memory is of
the state before (issue 16: pins that were not loaded, so that replicas differed in MM)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.base.errors import PalisadeError
from palisade.metastore.compaction import Compactor
from palisade.metastore.digest import BucketSums
from palisade.metastore.lease import LeaseBook
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.requests import (
    Command,
    Compact,
    DeleteRange,
    LeaseExpire,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Pin,
    Put,
    Range,
    RequestId,
    SystemWrite,
    Unpin,
)
from palisade.metastore.state import StoreState
from palisade.metastore.system_records import SystemRecords
from tests.support.meta_driver import Driver

Entry = tuple[int, Command, RequestId | None]
"""How many milliseconds pass, what is applied, and the id of the request."""

KEYS = st.sampled_from((b"a", b"b", b"c"))
LEASES = st.sampled_from((7, 8))
REVISIONS = st.integers(1, 30)
PINS = st.sampled_from(("one", "two"))
COMMANDS = st.one_of(
    st.builds(Put, KEYS, st.binary(max_size=3), st.sampled_from((0, 0, 7, 8))),
    st.builds(Put, KEYS, st.binary(max_size=3)),
    st.builds(DeleteRange, KEYS),
    st.builds(LeaseGrant, st.integers(1, 100), LEASES),
    st.builds(LeaseRevoke, LEASES),
    st.builds(LeaseKeepAlive, LEASES),
    st.builds(LeaseExpire, st.just((7, 8))),
    st.builds(Pin, PINS, REVISIONS, st.sampled_from((5, 60_000))),
    st.builds(Unpin, PINS),
    st.builds(Compact, REVISIONS),
    st.builds(SystemWrite, st.just(()), st.just((("holder/a", b"1"),))),
    st.builds(SystemWrite, st.just((("holder/a", 0),)), st.just((("holder/a", b"2"),))),
)
REQUEST_IDS = st.none() | st.builds(RequestId, st.just("client"), st.integers(1, 4))
HISTORIES = st.lists(st.tuples(st.sampled_from((0, 0, 3_000)), COMMANDS, REQUEST_IDS), max_size=8)


class Replica:
    """A state machine over a store that snapshots are sent from and to."""

    def __init__(self, name: str) -> None:
        self.disk = MemoryStore(name)
        self.driver = Driver(self.disk)

    def apply(self, entries: Sequence[Entry]) -> None:
        for elapsed_ms, command, request_id in entries:
            self.driver.wait(elapsed_ms)
            self.driver.wire(command, request_id)

    def install(self, sender: Replica) -> None:
        asyncio.run(self._install(sender))

    async def _install(self, sender: Replica) -> None:
        reader = await sender.disk.open_snapshot()
        writer, number = self.disk.receive_snapshot(reader.meta), 0
        while (piece := reader.chunk(number)) is not None:
            writer.write(number, piece)
            number += 1
        await writer.finish()


def check_same(sender: Replica, receiver: Replica, later: Sequence[Entry]) -> None:
    """Results, MM and every row, entry by entry; and what a leader would propose by itself."""
    one, other = sender.driver, receiver.driver
    assert other.contents() == one.contents()
    for elapsed_ms, command, request_id in later:
        one.wait(elapsed_ms)
        result = one.wire(command, request_id)
        stamp, commands = one.log[-1]
        assert other.apply(stamp, commands) == [result]
        assert other.store.minimal_revision == one.store.minimal_revision
        assert other.store.digest() == one.store.digest()
    assert other.contents() == one.contents()
    assert other.store.due_commands(one.clock_ms + 5_000) == one.store.due_commands(one.clock_ms + 5_000)


def check_snapshot(senders: Sequence[Entry], receivers: Sequence[Entry], later: Sequence[Entry]) -> None:
    """The receiver has a past of its own, which the snapshot ends; it is behind, as no snapshot goes back."""
    sender, receiver = Replica("sender"), Replica("receiver")
    receiver.apply(receivers)
    sender.apply([*senders, *[(0, Put(b"a", b""), None)] * (len(receivers) + 1)])
    receiver.install(sender)
    check_same(sender, receiver, later)


@settings(max_examples=40, deadline=None)
@given(HISTORIES, HISTORIES, HISTORIES)
def test_replica_continues_from_a_snapshot_as_its_sender_does(
    senders: list[Entry], receivers: list[Entry], later: list[Entry]
) -> None:
    check_snapshot(senders, receivers, later)


def put(number: int) -> Entry:
    return (0, Put(b"k%d" % number, b""), None)


def test_pin_of_a_snapshot_holds_mm_back_at_its_receiver() -> None:
    history = [put(number) for number in range(9)]
    pinned = [*history, (0, Pin("reader", 4, 60_000), None)]
    check_snapshot(pinned, (), [(0, Compact(8), None), (0, Unpin("reader"), None)])


def test_pin_that_a_snapshot_does_not_have_holds_nothing_back() -> None:
    history = [put(number) for number in range(9)]
    check_snapshot([*history], [*history, (0, Pin("reader", 4, 60_000), None)], [(0, Compact(8), None)])


def of(client: str, sequence: int, command: Command) -> Entry:
    return (0, command, RequestId(client, sequence))


SENDERS: list[Entry] = [
    *(put(number) for number in range(9)),
    (0, LeaseGrant(60_000, 7), None),
    (0, Put(b"leased", b"", 7), None),
    of("client", 1, Put(b"once", b"")),
    (0, SystemWrite((), (("holder/a", b"1"),)), None),
    (0, Pin("reader", 4, 60_000), None),
]
RECEIVERS: list[Entry] = [(0, LeaseGrant(60_000, 8), None), of("client", 2, Put(b"other", b"")), put(20)]
LATER: list[Entry] = [
    put(3),
    of("client", 1, Put(b"once", b"")),
    of("client", 2, Put(b"other", b"")),
    (0, SystemWrite((("holder/a", 0),), (("holder/a", b"2"),)), None),
    (0, Compact(8), None),
    (0, LeaseRevoke(7), None),
    (0, LeaseRevoke(8), None),
]


def test_replica_continues_from_a_complete_snapshot() -> None:
    check_snapshot(SENDERS, RECEIVERS, LATER)


def test_reads_of_earlier_revisions_are_of_the_snapshot() -> None:
    """History that was read before is not kept."""
    sender, receiver = Replica("sender"), Replica("receiver")
    for replica, value in ((sender, b"new"), (receiver, b"old")):
        replica.apply([(0, Put(b"a", value), None), (0, Put(b"a", b""), None)])
    assert value_at(receiver, b"a", 2) == b"old"
    sender.apply([put(1)])
    receiver.install(sender)
    assert value_at(receiver, b"a", 2) == value_at(sender, b"a", 2) == b"new"


def value_at(replica: Replica, key: bytes, revision: int) -> bytes:
    (row,) = replica.driver.store.range(Range(key, revision=revision)).kvs
    return row.value


PARTS = (
    (StoreState, "load"),
    (BucketSums, "load"),
    (LeaseBook, "load"),
    (Compactor, "load"),
    (SystemRecords, "load"),
)


@pytest.mark.parametrize(("part", "load"), PARTS, ids=[part.__name__ for part, _ in PARTS])
def test_planted_part_that_is_not_loaded_from_a_snapshot_is_seen(
    part: type, load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the replica does then, or because it stops."""
    install = Replica.install

    def forgetful(self: Replica, sender: Replica) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(part, load, lambda *_: None)
            install(self, sender)

    monkeypatch.setattr(Replica, "install", forgetful)
    with pytest.raises((AssertionError, PalisadeError, KeyError)):
        check_snapshot(SENDERS, RECEIVERS, LATER)
