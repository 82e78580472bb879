"""F1, F2, F3 at the holder: when it may serve, and which messages it accepts."""

from __future__ import annotations

import pytest

from palisade.fencing.errors import InvariantBroken
from palisade.fencing.holder_state import Holder, NotActivated
from palisade.fencing.lease import GrantVerdict
from palisade.fencing.messages import (
    Behind,
    FencedMessage,
    GrantMessage,
    HolderId,
    HolderPhase,
    Release,
    StagedMessage,
    StageMessage,
    WelcomeMessage,
)
from palisade.fencing.stage_chain import Mark, NotMarked
from tests.support.fencing_pair import T_FENCE, TIMING, Pair
from tests.support.fencing_parts import rows

ME = HolderId("n1", "v1", 3)
RELEASED = 5


def fresh(now: float = 100.0, term: int = 0) -> Holder:
    return Holder(ME, TIMING, now, term=term)


def joined(now: float = 100.0, staged: int = 5) -> Holder:
    """Welcomed in term 7, with its marks, its listeners not asked yet."""
    holder = fresh(now)
    holder.hello(now, staged)
    holder.on_welcome(WelcomeMessage(7, staged, RELEASED), now)
    join = holder.join(now, staged)
    mark = holder.on_stage(StageMessage(7, join.chain, RELEASED, staged, ()), now)
    assert isinstance(mark, Mark)
    assert mark.anew
    assert holder.marked(mark, now) == StagedMessage(staged)
    return holder


def grant(holder: Holder, t0: float, required: int = 5, term: int = 7) -> GrantMessage:
    holder.renew(t0)
    return GrantMessage(term, ME.incarnation, t0, required)


def active(now: float = 100.0) -> Holder:
    """Its lease runs from now + 1."""
    holder = joined(now)
    holder.begin_recovery(now)
    holder.recovered(now)
    assert holder.on_grant(grant(holder, now + 1), now + 1.1) is GrantVerdict.ACCEPTED
    assert holder.activate(now + 1.1, 5) is None
    return holder


def test_holder_starts_fenced() -> None:
    holder = fresh()
    assert (holder.state, holder.serves(100.0), holder.gated) == (HolderPhase.FENCED, False, False)


def test_holder_serves_from_activation_until_its_deadline() -> None:
    holder = active()
    assert holder.deadline == 101.0 + T_FENCE
    assert holder.serves(holder.deadline - 0.001)
    assert not holder.serves(holder.deadline)


def test_lease_runs_from_the_request_not_from_the_grants_arrival() -> None:
    """design.md: counting from the last received response is what the seed does, and not sound."""
    holder = active()
    late = grant(holder, 102.0)
    assert holder.on_grant(late, 103.5) is GrantVerdict.ACCEPTED
    assert holder.deadline == 102.0 + T_FENCE
    assert holder.lease_age(103.5) == 1.5


def test_repeated_grant_extends_nothing() -> None:
    holder = active()
    again = grant(holder, 102.0)
    holder.on_grant(again, 102.1)
    assert holder.on_grant(again, 103.0) is GrantVerdict.ACCEPTED
    assert holder.deadline == 102.0 + T_FENCE


def test_reordered_grants_never_shorten_a_lease() -> None:
    holder = active()
    first, second = grant(holder, 102.0), grant(holder, 102.6)
    holder.on_grant(second, 102.7)
    holder.on_grant(first, 102.8)
    assert holder.deadline == 102.6 + T_FENCE


def test_grant_delayed_beyond_t_fence_is_rejected() -> None:
    """scenarios.md, "Messages delayed beyond T_fence"."""
    holder = joined()
    late = grant(holder, 101.0)
    assert holder.on_grant(late, 101.0 + T_FENCE) is GrantVerdict.RUN_OUT


def test_grant_requested_before_a_promise_is_rejected() -> None:
    """scenarios.md, "Grants that arrive ... after a FENCED answer"."""
    holder = joined()
    asked = grant(holder, 101.0)
    promise = holder.promise(101.2)
    assert promise == FencedMessage(7, 101.2)
    assert holder.on_grant(asked, 101.3) is GrantVerdict.PROMISED_AWAY
    assert holder.on_grant(grant(holder, 101.4), 101.5) is GrantVerdict.ACCEPTED


def test_promise_voids_a_held_lease() -> None:
    holder = joined()
    holder.on_grant(grant(holder, 101.0), 101.1)
    holder.promise(101.2)
    holder.begin_recovery(101.3)
    holder.recovered(101.3)
    assert holder.activate(101.3, 5) is NotActivated.LEASE


def test_serving_holder_makes_no_promise() -> None:
    holder = active()
    assert holder.promise(102.0) is None
    assert holder.serves(102.0)


def test_promise_requires_a_welcome_of_the_leader() -> None:
    """It might be granted something by another one meanwhile: DESIGN.md, step 4."""
    holder = fresh()
    holder.hello(100.0, 5)
    assert holder.promise(100.1) is None


def test_grant_of_an_older_term_is_rejected() -> None:
    holder = active()
    holder.on_release(Release(7, RELEASED), 102.0)
    assert holder.on_grant(grant(holder, 102.0, term=6), 102.1) is GrantVerdict.STALE_TERM


def test_term_seen_by_the_previous_process_counts() -> None:
    holder = fresh(term=9)
    holder.hello(100.0, 5)
    assert holder.on_welcome(WelcomeMessage(8, 5, 5), 100.1) is None
    assert not holder.wants_join


def test_grant_for_another_process_of_the_node_is_rejected() -> None:
    holder = joined()
    holder.renew(101.0)
    assert holder.on_grant(GrantMessage(7, 2, 101.0, 5), 101.1) is GrantVerdict.OTHER_INCARNATION


def test_unrequested_grant_is_rejected() -> None:
    holder = joined()
    holder.renew(101.0)
    assert holder.on_grant(GrantMessage(7, 3, 200.0, 5), 101.1) is GrantVerdict.NEVER_ASKED


def test_grant_is_kept_until_its_required_revision_is_staged() -> None:
    """Commits of marks take longer than a message: else renewals would fail under a stream of writes."""
    holder = active()
    holder.on_grant(grant(holder, 101.5), 101.6)
    chain = holder.hello(101.7, 5).chain
    holder.on_welcome(WelcomeMessage(7, 6, RELEASED), 101.7)
    mark = holder.on_stage(StageMessage(7, chain, 5, 6, rows([6])), 101.8)
    assert holder.on_grant(grant(holder, 102.0, required=6), 102.1) is GrantVerdict.KEPT
    assert holder.deadline == 101.5 + T_FENCE
    assert isinstance(mark, Mark)
    assert holder.marked(mark, 102.2) == StagedMessage(6)
    assert holder.deadline == 102.0 + T_FENCE


def test_grant_without_its_required_revision_extends_nothing() -> None:
    """F5: a grant cannot prolong a cache that has not seen the change."""
    holder = active()
    for t0 in (102.0, 102.6, 103.2, 103.8):
        assert holder.on_grant(grant(holder, t0, required=6), t0 + 0.1) is GrantVerdict.KEPT
    assert holder.deadline == 101.0 + T_FENCE
    assert holder.tick(holder.deadline)
    assert holder.state is HolderPhase.FENCED


def test_expired_holder_stays_fenced_after_any_message() -> None:
    holder = active()
    assert holder.tick(101.0 + T_FENCE)
    late = grant(holder, 104.1)
    holder.on_grant(late, 104.2)
    assert holder.state is HolderPhase.FENCED
    assert not holder.joined


def test_expiry_is_reported_once_by_tick() -> None:
    """Its caller publishes FENCED, opens the gate and promises, also if a message came first."""
    holder = active()
    end = 101.0 + T_FENCE
    holder.on_release(Release(7, RELEASED), end)
    assert holder.state is HolderPhase.FENCED
    assert holder.tick(end)
    assert not holder.tick(end)


def test_deliberate_fence_is_not_reported_by_tick() -> None:
    holder = active()
    holder.unmarked(102.0)
    assert not holder.tick(102.0)
    stopped = active()
    stopped.stop(102.0)
    assert not stopped.tick(102.0)


def test_restarted_holder_ignores_stages_of_the_previous_process() -> None:
    """In one process, with the same incarnation and over the same connection."""
    before = fresh(100.0)
    before.hello(100.0, 5)
    before.on_welcome(WelcomeMessage(7, 5, RELEASED), 100.1)
    join = before.join(100.1, 5)
    after = fresh(100.2)
    after.hello(100.2, 5)
    after.on_welcome(WelcomeMessage(7, 5, RELEASED), 100.3)
    after.join(100.3, 5)
    assert after.on_stage(StageMessage(7, join.chain, 5, 5, ()), 100.4) is NotMarked.OTHER_CHAIN


def test_suspend_is_detected_at_the_first_call_after_it() -> None:
    """scenarios.md, "wall and boot clock jump": time is CLOCK_BOOTTIME, which counts while the process is stopped."""
    holder = active()
    assert not holder.serves(101.0 + 8 * 3600)
    assert holder.state is HolderPhase.ACTIVE
    assert holder.tick(101.0 + 8 * 3600)


def test_activation_requires_listeners_stages_and_lease() -> None:
    holder = joined()
    assert holder.activate(100.1, 5) is NotActivated.RECOVERY
    holder.begin_recovery(100.2)
    assert holder.activate(100.3, 5) is NotActivated.LISTENERS
    holder.recovered(100.4)
    assert holder.activate(100.5, 6) is NotActivated.STAGING
    assert holder.activate(100.5, 5) is NotActivated.LEASE
    holder.on_grant(grant(holder, 100.6), 100.7)
    assert holder.activate(100.7, 6) is NotActivated.STAGING
    assert holder.activate(100.7, 5) is None
    assert holder.activate(100.7, 5) is NotActivated.ALREADY


def test_slow_listener_delays_only_activation() -> None:
    """F11; leases are asked for meanwhile, in every state, from no cache at all."""
    holder = joined()
    holder.begin_recovery(100.1)
    for number in range(50):
        now = 101.0 + 0.6 * number
        assert holder.renew(now).asks
        assert holder.on_grant(GrantMessage(7, 3, now, 5), now + 0.01) is GrantVerdict.ACCEPTED
        assert holder.activate(now + 0.02, 5) is NotActivated.LISTENERS
    holder.recovered(131.0)
    assert holder.activate(131.0, 5) is None


def test_failing_listener_keeps_the_holder_fenced_and_retries_with_backoff() -> None:
    """F2."""
    holder = joined()
    now, waits = 101.0, []
    for _ in range(9):
        assert holder.wants_recovery(now)
        holder.begin_recovery(now)
        retry_at = holder.recovery_failed(now, "segment index: disk full")
        assert holder.state is HolderPhase.FENCED
        assert holder.last_failure == "segment index: disk full"
        waits.append(round(retry_at - now, 3))
        assert not holder.wants_recovery(retry_at - 0.001)
        now = retry_at
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    holder.begin_recovery(now)
    holder.recovered(now)
    assert holder.last_failure is None


def test_renewals_are_due_five_times_in_a_lease() -> None:
    holder = active()
    holder.renew(102.0)
    assert holder.next_renewal() == pytest.approx(102.0 + T_FENCE / 5)


def test_stage_after_a_gap_is_rejected() -> None:
    holder = joined()
    chain = holder.hello(101.0, 5).chain
    assert holder.on_stage(StageMessage(7, chain, 6, 7, rows([7])), 101.1) is NotMarked.GAP
    assert holder.staged == 5


def test_repeated_stage_is_acknowledged_without_marks() -> None:
    holder = joined()
    chain = holder.hello(101.0, 5).chain
    stage = StageMessage(7, chain, 5, 6, rows([6]))
    mark = holder.on_stage(stage, 101.1)
    assert isinstance(mark, Mark)
    assert holder.on_stage(stage, 101.2) is NotMarked.HAD
    holder.marked(mark, 101.3)
    assert holder.on_stage(stage, 101.4) == StagedMessage(6)


def test_overlapping_stage_marks_only_new_rows() -> None:
    """An old row would come in front of a newer one of its key."""
    holder = joined()
    chain = holder.hello(101.0, 5).chain
    holder.on_stage(StageMessage(7, chain, 5, 6, rows([6])), 101.1)
    mark = holder.on_stage(StageMessage(7, chain, 5, 8, rows([6, 7, 8])), 101.2)
    assert isinstance(mark, Mark)
    assert [row[0] for row in mark.rows] == [7, 8]


def test_stage_from_before_the_join_is_ignored() -> None:
    """The vault may have applied what is not released since, unmarked: DESIGN.md, step 3."""
    holder = active()
    chain = holder.hello(102.0, 5).chain
    holder.tick(101.0 + T_FENCE)
    holder.hello(104.1, 6)
    holder.on_welcome(WelcomeMessage(7, 7, RELEASED), 104.2)
    holder.join(104.3, 6)
    assert holder.on_stage(StageMessage(7, chain, 5, 7, rows([7])), 104.4) is NotMarked.OTHER_CHAIN
    assert not holder.joined


def test_join_rejects_a_stage_that_begins_after_lv() -> None:
    holder = fresh()
    holder.hello(100.0, 5)
    holder.on_welcome(WelcomeMessage(7, 9, 8), 100.1)
    join = holder.join(100.2, 5)
    assert holder.on_stage(StageMessage(7, join.chain, 8, 9, rows([9])), 100.3) is NotMarked.GAP


def test_marks_that_fail_to_commit_are_staged_again() -> None:
    """Everywhere, "disk full"."""
    holder = active()
    chain = holder.hello(101.2, 5).chain
    mark = holder.on_stage(StageMessage(7, chain, 5, 6, rows([6])), 101.3)
    assert isinstance(mark, Mark)
    holder.mark_failed(101.4)
    assert holder.marked(mark, 101.5) is None
    assert (holder.staged, holder.serves(101.5)) == (5, True)
    hello = holder.hello(101.6, 5)
    assert (hello.joined, hello.staged) == (True, 5)


def test_marks_committed_after_a_fence_acknowledge_nothing() -> None:
    holder = active()
    chain = holder.hello(101.2, 5).chain
    mark = holder.on_stage(StageMessage(7, chain, 5, 6, rows([6])), 101.3)
    assert isinstance(mark, Mark)
    assert holder.marked(mark, 101.0 + T_FENCE) is None


def test_joined_holder_does_not_join_again() -> None:
    holder = active()
    assert not holder.wants_join
    with pytest.raises(InvariantBroken):
        holder.join(102.0, 5)


def test_behind_fences_the_holder_and_returns_a_promise() -> None:
    holder = active()
    chain = holder.hello(102.0, 5).chain
    holder.on_welcome(WelcomeMessage(7, 900, RELEASED), 102.1)
    assert holder.on_behind(Behind(7, chain - 1, 900), 102.2) is None
    assert holder.on_behind(Behind(7, chain, 900), 102.3) == FencedMessage(7, 102.3)
    assert holder.state is HolderPhase.FENCED
    assert holder.wants_join


def test_incoming_snapshot_fences_the_holder() -> None:
    holder = active()
    holder.unmarked(102.0)
    assert (holder.state, holder.joined) == (HolderPhase.FENCED, False)


def test_release_beyond_staged_fences_the_holder() -> None:
    """The leader took the lease for over while it was not: better late than never."""
    holder = active()
    holder.on_release(Release(7, 6), 102.0)
    assert holder.state is HolderPhase.FENCED
    assert holder.tick(102.0)


def test_released_never_goes_back() -> None:
    holder = active()
    assert not holder.on_release(Release(9, 3), 102.0)
    assert holder.released == RELEASED


def test_stop_ends_serving() -> None:
    holder = active()
    assert holder.stop(102.0) == FencedMessage(7, 102.0)
    assert not holder.serves(102.0)
    assert not holder.renew(102.1).asks
    assert holder.on_grant(GrantMessage(7, 3, 101.0, 5), 102.2) is GrantVerdict.STOPPED
    assert holder.activate(102.3, 5) is NotActivated.STOPPED
    assert not holder.wants_recovery(200.0)


def test_broken_connection_keeps_the_lease() -> None:
    pair = Pair("n1")
    pair.serve()
    pair.write()
    pair.connect("n1")
    assert pair.holders["n1"].serves(pair.now)
    pair.stage("n1")
    assert pair.release() == 1


def test_holder_of_an_empty_cluster_becomes_active() -> None:
    pair = Pair("n1", lm=0)
    pair.serve()
    assert pair.holders["n1"].serves(pair.now)
