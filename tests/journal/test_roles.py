"""A replicated journal by activation, in simulated time: the seed's three worked examples, and every role change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.journal_world import JournalWorld


@pytest.fixture
def world() -> Iterator[JournalWorld]:
    world = JournalWorld()
    yield world
    assert world.violations == []
    world.close()


def pair_in_sync(world: JournalWorld) -> None:
    world.start("a")
    world.start("b")
    world.until_active("a")
    world.until_in_sync()


def test_journal_appends_and_replicates(world: JournalWorld) -> None:
    pair_in_sync(world)
    assert world.append(b"one", b"two") == 2
    assert world.entries("a") == world.entries("b") == {1: b"one", 2: b"two"}


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
    """The connection breaks, the primary serves alone and stops; the backup goes on trying."""
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
