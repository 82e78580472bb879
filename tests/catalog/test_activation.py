"""Ordered activation: every order of steps within bounds, and the decisions one by one (A1 to A3, seed 004)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palisade.catalog import activation
from palisade.catalog.activation import (
    ActivationRecord,
    ClaimNext,
    ClaimState,
    Decision,
    Follow,
    LocalSequence,
    ReplicaEvent,
    ReplicaState,
    Stop,
    acknowledgement_needs,
    after,
    claimed,
    committed,
    decide,
    record_key,
)
from palisade.catalog.errors import DamagedRow, NewerRow, NotAllowed
from tests.support.activation_world import EPOCH, Explorer, Rules

COMMITTED, CLAIMED = ClaimState.COMMITTED, ClaimState.CLAIMED


def at(sequence: int, epoch: int = EPOCH) -> LocalSequence:
    return LocalSequence(sequence, epoch)


def agreed(sequence: int, served: int | None = None, owner: str = "n1") -> ActivationRecord:
    """Committed, or claimed where `served` is given."""
    if served is None:
        return ActivationRecord("broker", sequence, COMMITTED, owner, sequence, EPOCH)
    return ActivationRecord("broker", sequence, CLAIMED, owner, served, EPOCH)


def test_acknowledged_entries_survive_every_order_of_steps() -> None:
    found = Explorer(Rules(), disturbances=3).explore()
    assert found.violation is None, found.trace
    assert found.worlds > 10_000
    assert found.steps.count("n2 commits") > 100


def starts_when_one_behind(record: ActivationRecord | None, local: LocalSequence | None, **rest: int) -> Decision:
    return decide(record, local and replace(local, sequence=local.sequence + 1), **rest)  # type: ignore[arg-type]


def starts_without_sequence(record: ActivationRecord | None, local: LocalSequence | None, **rest: int) -> Decision:
    return decide(record, local or (record and at(record.sequence)), **rest)  # type: ignore[arg-type]


def resumes_the_claim(record: ActivationRecord | None, role: str, owner: str, epoch: int) -> ActivationRecord:
    if record is not None and record.state is CLAIMED:
        return replace(record, owner=owner)
    return claimed(record, role, owner, epoch)


def follows_its_first_claim(record: ActivationRecord | None, local: LocalSequence | None, **rest: int) -> Decision:
    return decide(record, local, **rest) if record is None or local else Follow("it has no sequence")  # type: ignore[arg-type]


FAULTS = {
    "a-first-claim-that-was-interrupted-is-never-repeated": Rules(decide=follows_its_first_claim),
    "an-older-copy-starts": Rules(decide=starts_when_one_behind),
    "an-empty-copy-starts": Rules(decide=starts_without_sequence),
    "another-copy's-claim-is-resumed": Rules(claimed=resumes_the_claim),
    "commit-without-token": Rules(commit_is_guarded=False),
    "sequence-not-raised-on-loss-of-the-replica": Rules(raises_on_loss=False),
    "replica-adopts-before-entries-need-it": Rules(in_sync_before_adoption=False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_exploration_sees_the_planted_fault(fault: str) -> None:
    found = Explorer(FAULTS[fault], disturbances=3).explore()
    assert found.violation is not None


def test_seed_scenario_1_the_primary_does_not_start_with_the_older_copy() -> None:
    """The primary stops, the backup serves alone and stops; then the primary starts."""
    record = committed(claimed(None, "broker", "n1", EPOCH))
    primary = backup = at(record.sequence)
    assert decide(record, backup, configured_primary=False, epoch=EPOCH) == ClaimNext()
    record = committed(claimed(record, "broker", "n2", EPOCH))
    backup = at(record.sequence)
    assert isinstance(decide(record, primary, configured_primary=True, epoch=EPOCH), Follow)
    assert decide(record, backup, configured_primary=False, epoch=EPOCH) == ClaimNext()


def test_seed_scenario_2_the_backup_does_not_take_over_after_a_glitch() -> None:
    """The connection breaks, the active copy serves alone and stops; the backup continues to try."""
    record = committed(claimed(None, "broker", "n1", EPOCH))
    backup = at(record.sequence)
    assert acknowledgement_needs(after(ReplicaState.IN_SYNC, ReplicaEvent.DETACHED)) is None
    record = committed(claimed(record, "broker", "n1", EPOCH))
    assert isinstance(decide(record, backup, configured_primary=False, epoch=EPOCH), Follow)


def test_seed_scenario_3_a_lucky_active_copy_raises_its_sequence_and_the_backup_gives_up() -> None:
    """The copy is sent with its sequence to a replica that is not in sync yet, which may then take over at any time."""
    record = committed(claimed(None, "broker", "n1", EPOCH))
    replica = after(after(ReplicaState.NONE, ReplicaEvent.ATTACHED), ReplicaEvent.CAUGHT_UP)
    backup = at(record.sequence)
    assert acknowledgement_needs(replica) == {"active", "replica"}
    replica = after(replica, ReplicaEvent.DETACHED)
    record = committed(claimed(record, "broker", "n1", EPOCH))
    assert acknowledgement_needs(after(replica, ReplicaEvent.SEQUENCE_RAISED)) == {"active"}
    assert isinstance(decide(record, backup, configured_primary=False, epoch=EPOCH), Follow)


def test_owner_of_the_record_with_an_older_copy_does_not_start() -> None:
    """Seed 004, the ABA problem: a, then b alone, then a alone. The last owner is a; so is the owner of a copy of a's
    directory from the first time, and the identity of the last owner would let it start."""
    record: ActivationRecord | None = None
    copies = []
    for owner in ("a", "b", "a"):
        record = committed(claimed(record, "broker", owner, EPOCH))
        copies.append(at(record.sequence))
    assert record is not None
    assert record.owner == "a"
    found = [decide(record, copy, configured_primary=True, epoch=EPOCH) for copy in copies]
    assert [type(each) for each in found] == [Follow, Follow, ClaimNext]


@pytest.mark.parametrize(
    ("record", "local", "primary", "expected"),
    [
        (None, None, True, ClaimNext),
        (None, None, False, Follow),
        (None, at(3), True, Stop),
        (agreed(3), at(3), False, ClaimNext),
        (agreed(3), at(2), True, Follow),
        (agreed(3), None, True, Follow),
        (agreed(3), at(4), True, Stop),
        (agreed(4, served=3), at(4), False, ClaimNext),
        (agreed(4, served=3), at(3), False, ClaimNext),
        (agreed(4, served=3), at(2), True, Follow),
        (agreed(4, served=3), None, True, Follow),
        (agreed(4, served=3), at(5), True, Stop),
        (agreed(1, served=0), None, True, ClaimNext),
        (agreed(1, served=0), None, False, Follow),
        (agreed(1, served=0), at(1), True, ClaimNext),
        (agreed(1, served=0), at(2), True, Stop),
        (agreed(3), at(3, epoch=EPOCH - 1), True, Follow),
        (agreed(3), at(9, epoch=EPOCH - 1), True, Follow),
        (replace(agreed(3), epoch=EPOCH - 1), at(3, epoch=EPOCH - 1), True, Stop),
        (replace(agreed(3), epoch=EPOCH - 1), None, True, Stop),
    ],
)
def test_decision_table(
    record: ActivationRecord | None, local: LocalSequence | None, primary: bool, expected: type[Decision]
) -> None:
    """Claimed -4 with local 4, 3, 2 and none are the seed's crash points."""
    assert type(decide(record, local, configured_primary=primary, epoch=EPOCH)) is expected


def test_claims_take_a_sequence_that_no_copy_has() -> None:
    record = claimed(agreed(4, served=3, owner="n2"), "broker", "n1", EPOCH)
    assert (record.sequence, record.served, record.owner, record.state) == (5, 3, "n1", CLAIMED)
    assert committed(record).served == 5


def test_record_of_a_newer_format_is_refused() -> None:
    packed = agreed(3).to_bytes().replace(b'"format":1', b'"format":2')
    with pytest.raises(NewerRow, match="format 2, this version reads 1: install a newer version"):
        ActivationRecord.from_bytes(agreed(3).key, packed)


def test_claim_after_the_last_sequence_is_refused() -> None:
    with pytest.raises(NotAllowed, match="is the last one"):
        claimed(agreed(activation.SEQUENCE_MAX), "broker", "n1", EPOCH)


@pytest.mark.parametrize("record", [agreed(1), agreed(7, served=5), agreed(1, served=0)])
def test_record_round_trips(record: ActivationRecord) -> None:
    assert ActivationRecord.from_bytes(record.key, record.to_bytes()) == record


@pytest.mark.parametrize(
    "changed",
    [
        {"served": 9},
        {"served": 3},
        {"served": -1},
        {"served": True},
        {"sequence": 0},
        {"sequence": "x"},
        {"state": "held"},
        {"owner": "../x"},
        {"epoch": 0},
        {"role": ""},
    ],
)
def test_record_that_contradicts_itself_is_refused(changed: dict[str, object]) -> None:
    fields = {"role": "broker", "sequence": 4, "state": "committed", "owner": "n1", "served": 4, "epoch": 1} | changed
    with pytest.raises(DamagedRow, match=next(iter(changed))):
        ActivationRecord.from_bytes(
            record_key("broker"), str(fields).replace("'", '"').replace("True", "true").encode()
        )


@pytest.mark.parametrize(
    ("replica", "event"),
    [
        (replica, event)
        for replica in ReplicaState
        for event in ReplicaEvent
        if (replica, event) not in activation.TRANSITIONS
    ],
)
def test_impossible_event_of_a_replica_is_refused(replica: ReplicaState, event: ReplicaEvent) -> None:
    with pytest.raises(NotAllowed):
        after(replica, event)
