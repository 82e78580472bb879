"""Forced activation: which copy may be forced, with which sequence, and what is given up (A4, seed 004)."""

from __future__ import annotations

from itertools import product

import pytest

from palisade.catalog.activation import ActivationRecord, ClaimNext, ClaimState, LocalSequence, decide
from palisade.catalog.errors import DamagedRow, NotAllowed
from palisade.catalog.forced_activation import (
    AgreedView,
    CopyReport,
    ForcedActivation,
    Operator,
    forced,
    reconciled,
)

OPERATOR = Operator(by="root", at_ms=5)
OLDER = Operator(by="root", at_ms=5, older=True)


def at(sequence: int, epoch: int = 1) -> LocalSequence | None:
    return LocalSequence(sequence, epoch) if sequence else None


def agreed(sequence: int, served: int | None = None, *, epoch: int = 1, now: int = 1) -> AgreedView:
    state = ClaimState.COMMITTED if served is None else ClaimState.CLAIMED
    return AgreedView(ActivationRecord("r", sequence, state, "n1", sequence if served is None else served, epoch), now)


def chosen(sequence: int, epoch: int = 1) -> CopyReport:
    return CopyReport("/a", at(sequence, epoch))


def other(sequence: int, epoch: int = 1) -> CopyReport:
    return CopyReport("/b", at(sequence, epoch))


def force(
    own: CopyReport, others: list[CopyReport], seen: AgreedView | None, operator: Operator = OPERATOR
) -> ForcedActivation:
    return forced("r", "n1", own, others, seen, operator)


@pytest.mark.parametrize(
    ("own", "others", "seen", "reason"),
    [
        (chosen(3), [other(4)], agreed(3), r"/b: sequence 4 \(epoch 1\) is newer: entries"),
        (chosen(3), [], agreed(4), "has served with sequence 4"),
        (chosen(0), [], agreed(1), "has served with sequence 1"),
        (chosen(3), [other(1, epoch=2)], None, "epoch 2"),
        (CopyReport("/a", at(3), filling=True), [], agreed(3), "no complete copy"),
    ],
)
def test_older_copy_is_refused_unless_it_is_asked_for(
    own: CopyReport, others: list[CopyReport], seen: AgreedView | None, reason: str
) -> None:
    with pytest.raises(NotAllowed, match=reason):
        force(own, others, seen)
    done = force(own, others, seen, OLDER)
    assert done.older
    assert any("entries" in line for line in done.gives_up)


def test_copy_that_is_as_new_as_the_agreed_sequence_gives_up_nothing() -> None:
    done = force(chosen(4), [other(4)], agreed(4))
    assert (done.sequence, done.older, done.gives_up, done.agreed) == (5, False, (), 4)


def test_active_copy_is_refused() -> None:
    active = CopyReport("/b", at(3), active=True)
    for own, others in ((chosen(3), [active]), (active, [chosen(3)])):
        with pytest.raises(NotAllowed, match="is active at /b: stop that process first"):
            force(own, others, agreed(3), OLDER)


def test_unreadable_copy_is_refused() -> None:
    with pytest.raises(NotAllowed, match=r"can't be read \(bad checksum\)"):
        force(CopyReport("/a", problem="bad checksum"), [], agreed(3), OLDER)


@pytest.mark.parametrize("sequence", [0, 3, 4, (1 << 63) - 1])
def test_sequence_is_never_lowered(sequence: int) -> None:
    with pytest.raises(NotAllowed, match="never lowered"):
        force(chosen(4), [], agreed(3), Operator("root", 5, older=True, sequence=sequence))


def test_sequence_can_be_raised() -> None:
    assert force(chosen(4), [other(2)], agreed(3), Operator("root", 5, sequence=40)).sequence == 40


def test_uncompared_copy_is_given_up() -> None:
    lost = CopyReport("n2:7501", problem="connection refused")
    assert "n2:7501 was not compared (connection refused)" in force(chosen(4), [lost], agreed(4)).gives_up[0]
    assert "no record of the role" in force(chosen(4), [], AgreedView(None, 1)).gives_up[0]
    assert "was restored (epoch 1, now 2)" in force(chosen(4), [], agreed(4, now=2)).gives_up[0]
    assert "keep every other copy stopped" in force(chosen(4), [], None).gives_up[1]


VIEWS = [AgreedView(None, 1), AgreedView(None, 2)] + [
    agreed(sequence, served, epoch=epoch, now=now)
    for sequence, served, epoch, now in product((1, 2, 3), (None, 0, 1, 2), (1, 2), (1, 2))
    if (served is None or served < sequence) and epoch <= now
]


@pytest.mark.parametrize("seen", VIEWS)
def test_forced_copy_alone_may_become_active(seen: AgreedView) -> None:
    """Every agreed record, with every pair of local sequences: only the forced copy passes `decide` afterwards, and no
    number falls. Before the commit, no copy that is older than another compared one passes."""
    for own, beside, own_epoch, other_epoch in product(range(4), range(4), (1, 2), (1, 2)):
        if seen.epoch < max(own_epoch, other_epoch):
            continue
        mine, theirs = chosen(own, own_epoch), other(beside, other_epoch)
        done = force(mine, [theirs], seen, OLDER)
        highest = max(own, beside, seen.record.sequence if seen.record else 0)
        assert done.sequence > highest
        for record in (done.claim(), done.commit()):
            assert record.epoch == seen.epoch
            assert ActivationRecord.from_bytes(record.key, record.to_bytes()) == record
        after = decide(done.commit(), done.new_local, configured_primary=False, epoch=seen.epoch)
        assert isinstance(after, ClaimNext)
        assert not isinstance(decide(done.commit(), theirs.local, configured_primary=True, epoch=seen.epoch), ClaimNext)
        between = decide(done.claim(), theirs.local, configured_primary=True, epoch=seen.epoch)
        assert not isinstance(between, ClaimNext) or theirs.age[1] >= highest


def test_audit_record_is_read_as_it_was_written() -> None:
    for done in (force(chosen(4), [other(2)], agreed(4)), force(chosen(0), [], None)):
        assert ForcedActivation.from_bytes(done.key, done.to_bytes()) == done
    with pytest.raises(DamagedRow):
        ForcedActivation.from_bytes(b"k", b'{"role": "r"}')


# Without a majority of the metadata store.


@pytest.mark.parametrize("seen", [AgreedView(None, 1), agreed(4), agreed(4, 3), agreed(4, now=2)])
def test_forced_activation_is_reconciled_with_an_older_record(seen: AgreedView) -> None:
    done = reconciled(force(chosen(4), [], None), seen)
    assert (done.sequence, done.epoch, done.commit().served) == (5, seen.epoch, 5)
    assert isinstance(decide(done.commit(), done.new_local, configured_primary=False, epoch=seen.epoch), ClaimNext)


@pytest.mark.parametrize("seen", [agreed(5), agreed(5, 4), agreed(9)])
def test_forced_activation_stops_if_another_copy_was_activated_meanwhile(seen: AgreedView) -> None:
    """The other copy raised the agreed sequence before it served alone: to the forced one, or above it."""
    with pytest.raises(NotAllowed, match="both may have served"):
        reconciled(force(chosen(4), [], None), seen)
