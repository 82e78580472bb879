"""What a copy reports as synced is on its disk: errors of the disk, and connections that end between write and sync."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from palisade.catalog.activation import LocalSequence
from palisade.journal import log as log_module
from palisade.journal.blocks import BLOCK_HEADER_BYTES, FILE_HEADER_BYTES
from palisade.journal.errors import AppendUnknown, JournalDamaged
from tests.support.journal_world import JournalWorld, Place


@pytest.fixture(params=[False, True], ids=["", "reserved space"])
def world(request: pytest.FixtureRequest) -> Iterator[JournalWorld]:
    world = JournalWorld(reserves=request.param)
    yield world
    assert world.violations == []
    world.close()


def pair_in_sync(world: JournalWorld) -> tuple[Place, Place]:
    world.start("a")
    world.start("b")
    world.until_active("a")
    world.until_in_sync()
    return world.places["a"], world.places["b"]


def local(place: Place) -> LocalSequence:
    assert place.runner is not None
    found = place.runner.copy.state.local
    assert found is not None
    return found


def test_reattached_replica_syncs_what_it_wrote_before_it_adopts(world: JournalWorld) -> None:
    """The connection ends while the replica syncs the first entry and has only written the second one. The active copy
    acknowledges both alone, the replica attaches again without a difference, and survives alone."""
    _, b = pair_in_sync(world)
    before = local(b)
    b.disk.sync_s = 0.2
    process, client = world.client()

    async def append(content: bytes) -> None:
        number = await client.append(content)
        world.note(number, (content,))

    process.start(append(b"b1"))
    world.simulation.run_until(lambda: len(world.entries("b")) == 1, within_s=5)
    world.simulation.run_for(0.05)
    process.start(append(b"b2"))
    world.simulation.run_until(lambda: len(world.entries("b")) == 2, within_s=5)
    world.network.reset("a", "b")
    world.simulation.run_until(lambda: local(b).sequence > before.sequence, within_s=5)
    assert len(world.acknowledged) == 2
    world.kill("b", power=False)
    b.disk.lose_unsynced()
    world.kill("a")
    world.start("b")
    world.until_active("b")
    assert world.lost() == []


@pytest.mark.parametrize("fault", ["full", "sync fails"])
def test_error_of_its_own_disk_stops_the_replica(world: JournalWorld, fault: str) -> None:
    """Part of a block is stored, or pages are lost: what follows in the same file would be synced in vain."""
    world.places["b"].disk.reserves &= fault != "full"
    _, b = pair_in_sync(world)
    world.append(b"one")
    if fault == "full":
        b.disk.room = 20
    else:
        b.disk.sync_fails = True
    world.append(b"two")
    world.simulation.run_until(lambda: b.failure is not None, within_s=10)
    assert isinstance(b.failure, OSError)
    world.append(b"three")
    b.disk.room = 1 << 40
    world.kill("b")
    world.start("b")
    world.until_in_sync()
    world.kill("a")
    world.until_active("b")
    assert world.lost() == []


def test_replica_that_adopts_a_sequence_while_it_reads_the_record_continues(world: JournalWorld) -> None:
    """The record is read, the answer is late; the active copy raises the sequence, and the replica adopts it."""
    a = world.start("a")
    world.until_active("a")
    assert a.active is not None
    before = a.active.sequence
    b = world.start("b")
    assert b.store is not None
    b.store.status_s = 3.0
    world.until_in_sync()
    world.network.reset("a", "b")
    world.simulation.run_until(lambda: a.active is not None and a.active.sequence > before, within_s=2)
    world.until_in_sync(within_s=2)
    world.simulation.run_for(4)
    assert b.failure is None
    b.store.status_s = 0.0
    world.append(b"one")
    world.kill("a")
    world.until_active("b")
    assert world.lost() == []


def has_entries(world: JournalWorld, count: int) -> bool:
    return len(world.entries("b")) == count


def test_replica_that_lost_an_earlier_one_of_its_unsynced_writes_starts(world: JournalWorld) -> None:
    """A replica writes several blocks before it syncs. A power failure stores the last one and a part of the first."""
    _, b = pair_in_sync(world)
    world.append(b"one")
    b.disk.sync_s = 0.5
    process, client = world.client()

    async def append(content: bytes) -> None:
        with pytest.raises(AppendUnknown):
            await client.append(content)

    for last in (2, 3, 4):
        process.start(append(b"x" * 1000))
        world.simulation.run_until(partial(has_entries, world, last), within_s=0.4)
    world.kill("b", power=False)
    b.disk.lose_sector(1)
    world.kill("a")
    b.disk.sync_s = None
    world.start("b")
    world.until_active("b")
    assert world.entries("b") == {1: b"one"}
    assert world.lost() == []


FIRST_ENTRY = FILE_HEADER_BYTES + BLOCK_HEADER_BYTES + 4
"""Where the content of the first entry begins in its file."""


@pytest.fixture
def reads_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last block is kept in memory."""
    monkeypatch.setattr(log_module, "RECENT_BYTES", 0)


def break_reads(place: Place, fault: str) -> None:
    if fault == "damaged":
        place.disk.damage(FIRST_ENTRY)
    else:
        place.disk.read_fails = True


@pytest.mark.usefixtures("reads_files")
@pytest.mark.parametrize("fault", ["damaged", "unreadable"])
def test_read_that_finds_damage_is_answered_by_the_other_copy(world: JournalWorld, fault: str) -> None:
    """The copy with the damage stops: it neither acknowledges nor serves what it cannot read any more."""
    a, b = pair_in_sync(world)
    for content in (b"one", b"two", b"three"):
        world.append(content)
    break_reads(a, fault)
    process, client = world.client()
    assert world.simulation.run(process, client.read()) == ([(1, b"one"), (2, b"two"), (3, b"three")], 3)
    assert world.until_active("b") is b
    assert isinstance(a.failure, JournalDamaged if fault == "damaged" else OSError)
    if fault == "damaged":
        assert "start this copy empty, so that the other copy fills it" in str(a.failure)
    assert world.append(b"four") == 4


@pytest.mark.usefixtures("reads_files")
@pytest.mark.parametrize("fault", ["damaged", "unreadable"])
def test_damage_that_a_new_replica_would_receive_stops_the_active_copy_only(world: JournalWorld, fault: str) -> None:
    """The replica has nothing to follow, and waits: it is not complete, so it must not take over."""
    a = world.start("a")
    world.until_active("a")
    for content in (b"one", b"two", b"three"):
        world.append(content)
    break_reads(a, fault)
    b = world.start("b")
    world.simulation.run_until(lambda: a.failure is not None, within_s=10)
    world.simulation.run_for(10)
    assert isinstance(a.failure, JournalDamaged if fault == "damaged" else OSError)
    assert b.failure is None
    assert world.active() is None
    assert world.entries("b") == {}
