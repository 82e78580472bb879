"""No acknowledged entry is lost and no two copies are active at once, in any order of events; each rule is needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from xxhash import xxh3_64_intdigest

from palisade.catalog import activation
from palisade.catalog.activation import ActivationRecord, ClaimNext, Decision, LocalSequence, ReplicaState
from palisade.client.operations import Put
from palisade.journal import agreed, blocks, copy_state, local_file, role
from palisade.journal import log as log_module
from palisade.journal.acknowledgement import Acknowledgement
from palisade.journal.active import Active
from palisade.journal.agreed import Agreed, RoleRecord
from palisade.journal.blocks import JournalBlock
from palisade.journal.copy_state import CopyState
from palisade.journal.errors import JournalDamaged
from palisade.journal.local_file import LocalState
from palisade.journal.log import READ_BYTES, JournalLog
from tests.support import journal_world
from tests.support.journal_walk import ACTIONS, ACTIONS_WITH_DISKS, ACTIONS_WITH_FLIPS, walk
from tests.support.journal_world import JournalWorld

SEEDS = 12
DISK_SEEDS = 4
FLIP_SEEDS = 4
FAULT_SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_entries_survive_random_faults(seed: int) -> None:
    world = walk(seed)
    assert world.violations == [], f"seed {seed}"
    assert len(world.acknowledged) > 100
    world.close()


@pytest.mark.parametrize("seed", range(DISK_SEEDS))
def test_acknowledged_entries_survive_slow_and_failing_disks(seed: int) -> None:
    world = walk(seed, ACTIONS_WITH_DISKS)
    assert world.violations == [], f"seed {seed}"
    assert len(world.acknowledged) > 50
    world.close()


@pytest.fixture
def reads_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last block is kept in memory, so that reads meet what is on the disk."""
    monkeypatch.setattr(log_module, "RECENT_BYTES", 0)


@pytest.mark.usefixtures("reads_files")
@pytest.mark.parametrize("seed", range(FLIP_SEEDS))
def test_acknowledged_entries_survive_bits_that_flip_on_one_disk_at_a_time(seed: int) -> None:
    """Each flip stops its copy before anything damaged is served, replicated or dropped; the other copy continues."""
    world = walk(seed, ACTIONS_WITH_FLIPS)
    assert world.violations == [], f"seed {seed}"
    assert world.mended > 0
    assert len(world.acknowledged) > 100
    world.close()


Patch = Callable[[pytest.MonkeyPatch], None]


def commit_without_token(patch: pytest.MonkeyPatch) -> None:
    async def write(self: RoleRecord, _lock: object, seen: Agreed, record: ActivationRecord) -> Agreed:
        done = await self._store.txn([], [Put(record.key, record.to_bytes())])
        return Agreed(record, done.revision, seen.epoch)

    patch.setattr(RoleRecord, "_write", write)


def sequence_not_raised_on_loss_of_the_replica(patch: pytest.MonkeyPatch) -> None:
    async def forget(self: Active) -> None:
        self.progress.replica = ReplicaState.NONE
        self.advance()

    patch.setattr(Active, "_raise", forget)


def older_copy_starts(patch: pytest.MonkeyPatch) -> None:
    def decide(record: ActivationRecord | None, local: LocalSequence | None, **rest: int) -> Decision:
        found = activation.decide(record, local, **rest)  # type: ignore[arg-type]
        return ClaimNext() if record is not None and local is not None else found

    patch.setattr(role, "decide", decide)


def claim_healed_by_resuming_it(patch: pytest.MonkeyPatch) -> None:
    """A claim that was not committed is taken over with the same sequence, by whichever copy reads it."""

    def claimed(record: ActivationRecord | None, role: str, owner: str, epoch: int) -> ActivationRecord:
        if record is not None and record.state is activation.ClaimState.CLAIMED:
            return replace(record, owner=owner)
        return activation.claimed(record, role, owner, epoch)

    patch.setattr(agreed, "claimed", claimed)


def acknowledges_after_the_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Active, "in_time", property(lambda self: True))


def acknowledges_what_the_replica_lacks(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Acknowledgement, *, in_time: bool) -> int:
        if in_time and self.replica is not ReplicaState.LOST:
            self.acknowledged = max(self.acknowledged, self.synced)
        return self.acknowledged

    patch.setattr(Acknowledgement, "advance", advance)


def acknowledges_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    async def sync(self: JournalLog) -> None: ...

    patch.setattr(JournalLog, "sync", sync)


def adopts_before_it_is_in_sync(patch: pytest.MonkeyPatch) -> None:
    begin = CopyState.begin_filling

    async def begin_filling(self: CopyState, common: object, agreed: int) -> None:
        await begin(self, common, agreed)  # type: ignore[arg-type]
        await self.adopt(LocalSequence(agreed, 1))

    patch.setattr(CopyState, "begin_filling", begin_filling)


FAULTS: dict[Patch, int] = {
    sequence_not_raised_on_loss_of_the_replica: 0,
    older_copy_starts: 0,
    claim_healed_by_resuming_it: 12,
    acknowledges_after_the_deadline: 1,
    acknowledges_what_the_replica_lacks: 28,
    acknowledges_before_the_sync: 0,
}
"""The seed on which each shows soonest; others follow it."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_planted_fault_is_seen(fault: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert_seen(FAULTS[fault], ACTIONS)


class NeverDiffers(int):
    def __ne__(self, other: object) -> bool:
        return False


def checksums_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Neither for a reader, nor for a replica that is filled, nor at a start."""
    patch.setattr(blocks, "xxh3_64_intdigest", lambda *parts: NeverDiffers(xxh3_64_intdigest(*parts)))


def damage_counts_as_a_torn_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_module, "check_torn", lambda *_, **__: None)


def damaged_role_file_counts_as_new(patch: pytest.MonkeyPatch) -> None:
    def decode(packed: bytes, where: str) -> LocalState:
        with suppress(JournalDamaged):
            return local_file.decode(packed, where)
        return LocalState(journal_world.ROLE)

    patch.setattr(copy_state, "decode", decode)


def damaged_copy_stays_active(patch: pytest.MonkeyPatch) -> None:
    """It answers as if the journal ended before the damage."""
    blocks_from = JournalLog.blocks_from

    async def readable_blocks_from(self: JournalLog, number: int, size: int = READ_BYTES) -> list[JournalBlock]:
        with suppress(JournalDamaged):
            return await blocks_from(self, number, size)
        return []

    patch.setattr(JournalLog, "blocks_from", readable_blocks_from)


IGNORES_DAMAGE: dict[Patch, int] = {
    checksums_are_not_compared: 0,
    damage_counts_as_a_torn_end: 7,
    damaged_role_file_counts_as_new: 9,
    damaged_copy_stays_active: 2,
}
"""As `FAULTS`."""


@pytest.mark.usefixtures("reads_files")
@pytest.mark.parametrize("fault", IGNORES_DAMAGE, ids=lambda fault: fault.__name__)
def test_fault_that_ignores_damage_is_seen(fault: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert_seen(IGNORES_DAMAGE[fault], ACTIONS_WITH_FLIPS)


def assert_seen(first: int, actions: tuple[str, ...]) -> None:
    for seed in range(first, first + FAULT_SEEDS):
        try:
            world = walk(seed, actions)
        except AssertionError:
            return  # the role is not served again, or a process ended with an error
        found = world.violations
        world.close()
        if found:
            return
    pytest.fail(f"no violation in {FAULT_SEEDS} seeds")


def test_adoption_before_the_replica_is_in_sync_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active copy dies while it fills the replica: without the fault, the replica waits."""
    assert filled_copy_that_is_left_alone() is None
    adopts_before_it_is_in_sync(monkeypatch)
    assert filled_copy_that_is_left_alone() == [1, 2, 3]


def filled_copy_that_is_left_alone() -> list[int] | None:
    """The acknowledged entries that it lacks once it is active; None if it does not become active."""
    world = JournalWorld()
    world.start("a")
    world.until_active("a")
    world.append(b"1", b"2", b"3")
    place = world.start("b")
    world.simulation.run_until(lambda: place.runner is not None and place.runner.copy.state.filling, within_s=20)
    adopted = place.runner.copy if place.runner else None
    world.simulation.run_until(lambda: adopted is None or adopted.settled, within_s=20)
    world.network.cuts.add(frozenset("ab"))
    world.kill("a")
    world.simulation.run_for(10)
    lost = world.lost() if world.active() is place else None
    world.close()
    return lost


def test_commit_without_token_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim of a copy arrives after it died and the other copy took over: the transaction must refuse it."""
    assert owner_after_a_late_claim(monkeypatch) == "b"
    commit_without_token(monkeypatch)
    assert owner_after_a_late_claim(monkeypatch) == "a"


def owner_after_a_late_claim(monkeypatch: pytest.MonkeyPatch) -> str:
    """The owner of the record once every transaction has arrived, while b is active."""
    monkeypatch.setattr(journal_world, "SLOW_WRITE", 1.0)
    monkeypatch.setattr(journal_world, "SLOW_WRITE_S", 40.0)
    world = JournalWorld()
    world.start("a")
    world.start("b")
    world.until_active("a")
    world.until_in_sync()
    world.slow = True
    world.network.cuts.add(frozenset("ab"))
    world.simulation.run_for(1.5)
    world.kill("a")
    world.slow = False
    world.until_active("b")
    world.simulation.run_for(45)
    assert world.until_active().name == "b"
    packed = world.record()
    assert packed is not None
    world.close()
    return ActivationRecord.from_bytes(activation.record_key(journal_world.ROLE), packed).owner
