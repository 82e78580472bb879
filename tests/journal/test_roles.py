"""A replicated journal by activation, in simulated time: the seed's three worked examples, and every role change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from palisade.catalog.activation import claimed, lock_name, record_key
from palisade.client.claims import prefix_of
from palisade.journal import active as active_module
from palisade.journal.active import Active, Appended
from palisade.journal.blocks import ENTRY_BYTES_MAX
from palisade.journal.client import JournalClient
from palisade.journal.errors import ActivationStopped, AppendUnknown, EntryRefused, JournalError, NotActive, WrongRole
from palisade.journal.messages import JournalMessageKind
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import DeleteRange, Put, Range, prefix_end
from tests.support.journal_world import ROLE, JournalWorld


@pytest.fixture
def world() -> Iterator[JournalWorld]:
    world = JournalWorld()
    yield world
    assert world.violations == []
    world.close()


def appended(active: Active, content: bytes) -> asyncio.Future[Appended]:
    """Raises EntryRefused, NotActive; the future AppendUnknown."""
    future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def answer(result: Appended | JournalError) -> None:
        if isinstance(result, JournalError):
            future.set_exception(result)
        else:
            future.set_result(result)

    active.append([content], answer)
    return future


def pair_in_sync(world: JournalWorld) -> None:
    world.start("a")
    world.start("b")
    world.until_active("a")
    world.until_in_sync()


def test_journal_appends_and_replicates(world: JournalWorld) -> None:
    pair_in_sync(world)
    assert world.append(b"one", b"two") == 2
    assert world.entries("a") == world.entries("b") == {1: b"one", 2: b"two"}


def test_first_claim_that_was_interrupted_is_repeated(world: JournalWorld) -> None:
    """The primary dies after its claim and before it has a sequence: no copy has one, and none has ever served."""
    a = world.start("a")
    world.simulation.run_until(lambda: world.record() is not None, within_s=10)
    world.kill("a")
    assert a.active is None
    assert not any(b'"sequence": 1' in each.content for each in a.disk.files.values())
    world.start("b")
    world.simulation.run_for(20)
    assert world.active() is None, "a copy that is not the configured primary waits"
    world.start("a")
    world.until_active("a")
    world.until_in_sync()


def test_seed_scenario_1_older_primary_follows_and_its_entries_are_filled(world: JournalWorld) -> None:
    """The backup takes over, serves alone and stops; the primary that starts then waits for it."""
    pair_in_sync(world)
    world.append(b"both")
    world.kill("a")
    world.until_active("b")
    world.append(b"backup alone")
    world.kill("b")
    world.start("a")
    world.simulation.run_for(20)
    assert world.active() is None
    world.start("b")
    world.until_active("b")
    world.until_in_sync()
    assert world.entries("a")[2] == b"backup alone"


def test_seed_scenario_2_backup_does_not_take_over_after_a_glitch(world: JournalWorld) -> None:
    """The connection breaks, the primary serves alone and stops; the backup continues to try."""
    pair_in_sync(world)
    world.network.cuts.add(frozenset("ab"))
    world.append(b"primary alone")
    world.kill("a")
    world.simulation.run_for(20)
    assert world.active() is None
    world.network.heal()
    world.start("a")
    world.until_active("a")
    world.until_in_sync()
    assert world.entries("b")[1] == b"primary alone"


def test_seed_scenario_3_lucky_live_raises_its_sequence_and_the_backup_gives_up(world: JournalWorld) -> None:
    """The connection breaks when the sequence was sent to a replica that is not in sync yet. The live copy
    reaches the store, raises its sequence and serves on; the backup, which has adopted the sent one, must not start."""
    world.start("a")
    world.until_active("a")
    world.append(*(b"%d" % number for number in range(50)))
    world.start("b")
    active = world.places["a"].active
    assert active is not None
    world.simulation.run_until(lambda: active.progress.replica.value == "in sync", within_s=20)
    before = active.sequence
    world.network.cuts.add(frozenset("ab"))
    world.append(b"lucky")
    assert active.sequence == before + 1
    world.kill("a")
    world.network.heal()
    world.simulation.run_for(20)
    assert world.active() is None
    world.start("a")
    world.until_active("a")
    world.until_in_sync()
    assert world.lost() == []


def test_client_moves_to_the_other_copy_after_its_connection_ended(world: JournalWorld) -> None:
    pair_in_sync(world)
    process, client = world.client(timeout_s=8.0)
    first = world.simulation.run(process, client.append(b"one"))
    world.kill("a")
    world.simulation.run_for(0.1)
    assert world.simulation.run(process, client.append(b"two")) == first + 1


def test_journal_fails_over_within_3_s(world: JournalWorld) -> None:
    pair_in_sync(world)
    world.append(b"one")
    began = world.simulation.now
    world.kill("a")
    world.append(b"two")
    assert world.simulation.now - began < 3
    assert world.entries("b") == {1: b"one", 2: b"two"}


def test_primary_is_active_again_in_bounded_time_with_failback() -> None:
    world = JournalWorld(allow_failback=True)
    pair_in_sync(world)
    world.kill("a")
    world.append(b"backup alone")
    world.start("a")
    world.until_active("a", within_s=10)
    world.until_in_sync()
    assert world.entries("a") == world.entries("b") == {1: b"backup alone"}
    assert world.violations == []
    world.close()


def test_every_breaking_event_advances_the_sequence() -> None:
    """Seed 004: activation, loss of the replica, failback. The return of a replica is none."""
    world = JournalWorld(allow_failback=True)

    def agreed() -> tuple[int, str]:
        active = world.until_active().active
        assert active is not None
        record = active.agreed.record
        assert record is not None
        return record.sequence, record.owner

    pair_in_sync(world)
    assert agreed() == (1, "a"), "activation"
    world.network.cuts.add(frozenset("ab"))
    world.append(b"a alone")
    assert agreed() == (2, "a"), "loss of the replica"
    world.network.heal()
    world.until_in_sync()
    assert agreed() == (2, "a"), "its return"
    world.kill("a")
    world.append(b"b alone")
    assert agreed() == (3, "b"), "activation of the replica"
    world.start("a")
    world.until_active("a", within_s=10)
    assert agreed() == (4, "a"), "failback"
    world.until_in_sync()
    assert world.violations == []
    world.close()


def test_backup_keeps_the_role_without_failback(world: JournalWorld) -> None:
    pair_in_sync(world)
    world.kill("a")
    world.until_active("b")
    world.start("a")
    world.until_in_sync()
    world.simulation.run_for(10)
    assert world.until_active().name == "b"


def test_entries_that_were_never_acknowledged_go_aside_with_a_report(world: JournalWorld) -> None:
    """The active copy is cut off from the replica and the store while a client appends; the replica takes over."""
    pair_in_sync(world)
    world.append(b"both")
    place = world.places["a"]
    assert place.store is not None
    assert place.active is not None
    world.network.cuts.add(frozenset("ab"))
    place.store.cut_off = True
    active, process = place.active, place.process
    assert process is not None

    async def append() -> None:
        with pytest.raises(AppendUnknown):
            await appended(active, b"never acknowledged")

    unanswered = process.start(append())
    world.until_active("b")
    world.append(b"other")
    world.network.heal()
    place.store.cut_off = False
    world.until_in_sync()
    assert unanswered.done()
    (report,) = place.reports
    assert (report.first, report.last, report.sample) == (2, 2, ["never acknowledged"])
    assert report.sequence < report.agreed_sequence
    assert world.entries("a") == {1: b"both", 2: b"other"}


def test_empty_backup_that_starts_first_waits(world: JournalWorld) -> None:
    world.start("b")
    world.simulation.run_for(10)
    assert world.active() is None
    world.start("a")
    world.until_active("a")


def claims_to_the_lock(world: JournalWorld) -> int:
    prefix = prefix_of(lock_name(ROLE))
    return world.group.store.range(Range(prefix, prefix_end(prefix), count_only=True)).count


def test_stale_candidate_releases_the_lock(world: JournalWorld) -> None:
    """It waited for the lock while the active copy lost it as replica and served alone."""
    pair_in_sync(world)
    world.simulation.run_until(lambda: claims_to_the_lock(world) == 2, within_s=10)
    world.network.cuts.add(frozenset("ab"))
    world.append(b"alone")
    world.kill("a")
    held_s = 0.0
    for _ in range(200):
        held_s += 0.05 * (claims_to_the_lock(world) == 1)
        world.simulation.run_for(0.05)
    assert 0 < held_s < 0.4, "before its lease of 1 s ends"
    assert claims_to_the_lock(world) == 0
    assert world.active() is None


def test_two_candidates_repair_a_claim_at_once_and_one_wins(world: JournalWorld) -> None:
    """The active copy died between claim and commit. The next sequence is claimed, never the same one again."""
    pair_in_sync(world)
    world.append(b"both")
    active = world.places["a"].active
    assert active is not None
    record = active.agreed.record
    assert record is not None
    for name in ("a", "b"):
        world.kill(name)
    world.simulation.run_for(5)
    repaired = claimed(record, ROLE, "a", active.agreed.epoch)
    world.group.apply([encode_command(Put(repaired.key, repaired.to_bytes()))])
    before = len(world.activations)
    for name in ("b", "a"):
        world.start(name)
    winner = world.until_active()
    world.until_in_sync()
    assert len(world.activations) == before + 1
    assert winner.active is not None
    assert winner.active.sequence == repaired.sequence + 1 == record.sequence + 2
    assert world.entries("a") == world.entries("b") == {1: b"both"}


def test_lost_record_stops_the_copy_with_instructions(world: JournalWorld) -> None:
    pair_in_sync(world)
    world.kill("a")
    world.kill("b")
    world.simulation.run_for(3)
    world.group.apply([encode_command(DeleteRange(record_key(ROLE)))])
    place = world.start("a")
    world.simulation.run_until(lambda: place.failure is not None, within_s=10)
    assert isinstance(place.failure, ActivationStopped)
    assert "palisade activation force" in str(place.failure)


def test_client_of_another_role_is_refused(world: JournalWorld) -> None:
    pair_in_sync(world)
    process = world.simulation.process("stranger")
    client = JournalClient("payments", ["a"], network=world.network.dialler(process), clock=process.now)
    with pytest.raises(WrongRole, match="role orders, not payments"):
        world.simulation.run(process, client.append(b"x"))


@pytest.mark.parametrize("content", ["text", 7, None, ["nested"]])
def test_entry_that_is_not_bytes_is_refused_and_the_copy_stays_active(world: JournalWorld, content: Any) -> None:
    pair_in_sync(world)
    process, client = world.client()
    with pytest.raises(EntryRefused, match="an entry is bytes"):
        world.simulation.run(process, client.append(content))
    assert world.append(b"next") == 1


def test_entry_above_the_limit_is_refused(world: JournalWorld) -> None:
    pair_in_sync(world)
    with pytest.raises(EntryRefused, match="split it"):
        world.append(bytes(ENTRY_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "message",
    [
        (JournalMessageKind.APPEND, [1, [b"x"]]),
        (JournalMessageKind.STATUS, [1]),
        (JournalMessageKind.ATTACH, ["b", False, []]),
    ],
)
def test_connection_that_does_not_begin_with_hello_is_refused(
    world: JournalWorld, message: tuple[JournalMessageKind, list[object]]
) -> None:
    world.start("a")
    world.until_active("a")
    process = world.simulation.process("stranger")

    async def run() -> list[object]:
        channel = await world.network.dialler(process).dial("a")
        channel.send(*message)
        return [await channel.receive(), await channel.receive()]

    refusal, end = world.simulation.run(process, run())
    assert refusal[0] == JournalMessageKind.REFUSED
    assert "before HELLO" in refusal[1][2]
    assert end is None
    assert world.entries("a") == {}


def test_appends_beyond_the_limit_are_refused_until_earlier_ones_are_answered(
    world: JournalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair_in_sync(world)
    monkeypatch.setattr(active_module, "HELD_BYTES_MAX", 10_000)
    place = world.places["a"]
    assert place.active is not None
    assert place.process is not None
    active = place.active

    async def run() -> None:
        for _ in range(3):
            first, second = (appended(active, bytes(4000)) for _ in range(2))
            with pytest.raises(NotActive, match="nothing was appended"):
                appended(active, bytes(4000))
            await first
            await second

    world.simulation.run(place.process, run())
    assert len(world.entries("b")) == 6
