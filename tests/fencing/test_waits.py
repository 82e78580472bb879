"""F3 to F6, F8, F11 and scenarios.md, "Fencing", from the leader's side: which holders it waits for, and until when."""

from __future__ import annotations

import pytest

from palisade.fencing.errors import InvariantBroken, NotLeading
from palisade.fencing.former_leases import former_name
from palisade.fencing.messages import FencedMessage, GrantMessage, HolderId, HolderPhase, Renew
from palisade.fencing.registry import HolderStanding
from palisade.fencing.release import NotGranted, Registration, Releases
from palisade.fencing.verdict import Facts, Judgement, VerdictOutcome, judge
from tests.support.fencing_pair import T_FENCE, T_PROCEED, TIMING, Pair


def judgements(pair: Pair, revision: int | None = None) -> dict[str, Judgement]:
    verdict = pair.leader.verdict(pair.now, revision)
    assert verdict is not None
    return {each.node: each.judgement for each in verdict.judged}


def test_revision_is_released_once_all_acknowledge() -> None:
    pair = Pair("n1", "n2", "n3")
    pair.serve()
    revision = pair.write()
    for name in pair.holders:
        assert pair.leader.advance(pair.now) is None
        pair.stage(name)
    assert pair.leader.advance(pair.now) == revision
    assert pair.leader.visible(revision)
    (finished,) = pair.leader.take_released()
    assert (finished.waited_s, finished.by_fence) == (0, False)


def test_unreachable_holder_delays_release_until_t_proceed() -> None:
    pair = Pair("n1", "n2")
    pair.serve()
    granted_at = pair.leader.registry.of("n2").granted_at  # type: ignore[union-attr]
    assert granted_at is not None
    pair.now += 0.5
    pair.write()
    pair.stage("n1")
    verdict = pair.leader.verdict(pair.now)
    assert verdict is not None
    assert verdict.outcome is VerdictOutcome.WAIT
    assert verdict.until == pytest.approx(granted_at + T_PROCEED)
    assert verdict.reasons == (
        f"n2 has not acknowledged revision 1, and may serve for another {verdict.until - pair.now:.1f} s",
    )
    pair.now = verdict.until - 0.001
    assert pair.leader.advance(pair.now) is None
    pair.now = verdict.until
    assert pair.leader.advance(pair.now) == 1
    assert not pair.holders["n2"].serves(pair.now)
    assert pair.leader.take_released()[0].by_fence


def test_former_leases_are_named_by_what_they_are() -> None:
    """The record of unknown holders has a name that no node has (issue 16: "(before generation 2) has not ...")."""
    judged = judge(Facts(former_name(2), True, 0, 9.0, False, 3.0), 1, 10.5)
    assert (judged.judgement, judged.until) == (Judgement.PENDING, 12.0)
    assert judged.reason == "leases from before generation 2 may be in use for another 1.5 s"


def test_fenced_holder_delays_no_release() -> None:
    pair = Pair("n1", "n2")
    pair.serve()
    first = pair.write()
    pair.stage("n1")
    promise = pair.holders["n2"].stop(pair.now)
    assert promise is not None
    assert pair.leader.fenced(pair.holders["n2"].me, promise, pair.now)
    assert judgements(pair) == {"n1": Judgement.ACKED, "n2": Judgement.FENCED_SAFE}
    assert pair.leader.advance(pair.now) == first
    second = pair.write()
    pair.stage("n1")
    assert pair.leader.advance(pair.now) == second


def test_promise_from_before_a_grant_is_ignored() -> None:
    pair = Pair("n1")
    pair.connect("n1")
    old = pair.holders["n1"].promise(pair.now)
    assert old is not None
    pair.now += 0.1
    pair.serve()
    assert not pair.leader.fenced(pair.holders["n1"].me, old, pair.now)
    pair.write()
    assert judgements(pair) == {"n1": Judgement.PENDING}


def test_promise_to_another_leader_is_ignored() -> None:
    """It may have lain in a buffer while that one granted a lease."""
    pair = Pair("n1")
    pair.connect("n1")
    old = pair.holders["n1"].promise(pair.now)
    assert old is not None
    pair.now += 0.1
    pair.serve()
    pair.elect()
    assert not pair.leader.fenced(pair.holders["n1"].me, old, pair.now)


def test_hello_is_not_a_promise() -> None:
    pair = Pair("n1", lm=3)
    hello = pair.process("n1", 2).running.hello(pair.now, 0)
    assert pair.leader.hello(hello, pair.now) is HolderStanding.REGISTERED
    assert judgements(pair) == {"n1": Judgement.PENDING}


def test_holder_without_leases_is_never_judged_fenced() -> None:
    """F6: the strict rule applies to it alone, and the change stays pending (F8)."""
    leader = Releases(TIMING)
    leader.begin_term(
        1, 0.0, [Registration("old", "v", 3.0, fences=False), Registration("new", "w", 3.0, proceed_s=3.31)], 0
    )
    leader.committed(1, 1.0, (1, 1))
    verdict = leader.verdict(2.0)
    assert verdict is not None
    assert (verdict.outcome, verdict.until) == (VerdictOutcome.WAIT, None)
    assert leader.next_time(2.0) is None
    verdict = leader.verdict(1.0 + T_PROCEED)
    assert verdict is not None
    assert verdict.outcome is VerdictOutcome.FAIL
    assert verdict.reasons[0].startswith("old does not support leases and has not acknowledged revision 1")
    holder = HolderId("old", "v", 1)
    assert (
        leader.renew(holder, Renew(5.0, 0, HolderPhase.ACTIVE, True, 3.0, 3.31), 5.0, quorum_lease=True)
        is NotGranted.NOT_ASKED
    )
    assert not leader.fenced(holder, FencedMessage(1, 5.0), 5.0)
    assert leader.advance(1e6) is None
    leader.staged(holder, 1, 1e6)
    assert leader.advance(1e6) == 1


def test_removed_holder_without_leases_delays_no_release() -> None:
    leader = Releases(TIMING)
    leader.begin_term(1, 0.0, [Registration("old", "v", 3.0, fences=False)], 0)
    leader.committed(1, 1.0, (1, 1))
    assert leader.advance(2.0) is None
    leader.registry.unregister("old", 2.0)
    assert leader.advance(2.0) == 1


def test_silent_holder_delays_release_once_from_the_term_start() -> None:
    pair = Pair("n1", "n2", now=50.0)
    pair.serve("n1")
    pair.write()
    pair.stage("n1")
    assert pair.leader.next_time(pair.now) == pytest.approx(50.0 + T_PROCEED)


def test_registered_holder_without_a_grant_delays_no_release() -> None:
    pair = Pair("n1")
    pair.serve()
    pair.leader.registry.register(Registration("n2", "n2-v", T_FENCE, proceed_s=T_PROCEED), pair.now)
    pair.write()
    pair.stage("n1")
    assert pair.release() == 1


def test_holder_removed_during_a_wait_delays_release_until_safe() -> None:
    pair = Pair("n1", "n2")
    pair.serve()
    pair.write()
    pair.stage("n1")
    until = pair.leader.next_time(pair.now)
    assert until is not None
    assert not pair.leader.registry.leave("n2", pair.now).now
    pair.leader.registry.unregister("n2", pair.now)
    assert pair.leader.advance(until - 0.001) is None
    assert pair.leader.advance(until) == 1


def test_leaving_holder_is_granted_nothing() -> None:
    pair = Pair("n1")
    pair.serve()
    leave = pair.leader.registry.leave("n1", pair.now)
    assert not leave.now
    renew = pair.holders["n1"].renew(pair.now)
    me = pair.holders["n1"].me
    assert pair.leader.renew(me, renew, pair.now, quorum_lease=True) is NotGranted.LEAVING
    assert leave.until is not None
    assert pair.leader.registry.leave("n1", leave.until).now
    pair.leader.registry.stay("n1")
    assert isinstance(pair.leader.renew(me, renew, pair.now, quorum_lease=True), GrantMessage)


def test_two_writes_that_wait_for_the_same_node_end_together() -> None:
    pair = Pair("n1", "n2")
    pair.serve()
    pair.write()
    pair.now += 1.0
    pair.write()
    pair.stage("n1")
    first, second = (wait.verdict.until for wait in pair.leader.waits(pair.now))
    assert first == second
    assert first is not None
    assert pair.leader.advance(first - 0.001) is None
    assert pair.leader.advance(first) == 2
    assert (pair.leader.waiting, pair.leader.waits(first)) == (0, ())


def test_heartbeats_without_stages_extend_no_wait() -> None:
    """F5, F11, "heartbeat succeeds while the broadcast keeps failing"; and "REVOKE against a half-broken node"."""
    pair = Pair("n1")
    pair.serve()
    pair.write()
    committed_at = pair.now
    pair.stage("n1", deliver=False)
    holder = pair.holders["n1"]
    while pair.leader.rr != 1:
        pair.now += 0.6
        pair.renew("n1")
        if pair.leader.advance(pair.now) is not None:
            break
        assert pair.now < committed_at + T_PROCEED
    assert pair.now - committed_at < T_PROCEED + 0.6
    assert not holder.serves(pair.now)


def test_lost_acknowledgements_cost_one_wait_and_no_stale_read() -> None:
    """F11, "one-way loss in each direction": the renewal also carries the acknowledgement."""
    pair = Pair("n1")
    pair.serve()
    pair.write()
    pair.stage("n1", acknowledge=False)
    assert pair.leader.advance(pair.now) is None
    pair.now += 0.6
    pair.renew("n1")
    assert pair.leader.advance(pair.now) == 1


def test_lost_grants_renew_no_lease() -> None:
    """F11, the other direction; this is what the seed's contact tracker gets wrong (design.md)."""
    pair = Pair("n1")
    pair.serve()
    deadline = pair.holders["n1"].deadline
    for _ in range(4):
        pair.now += 0.6
        assert pair.renew("n1", deliver=False) is not None
    assert pair.holders["n1"].deadline == deadline
    pair.write()
    assert pair.leader.next_time(pair.now) == pytest.approx(pair.now + T_PROCEED)
    assert not pair.holders["n1"].serves(deadline)
    pair.now += T_PROCEED
    assert pair.renew("n1") is None, "it has run out: it has to join before it asks again"
    assert pair.leader.next_time(pair.now) == pair.now
    assert pair.leader.advance(pair.now) == 1


def test_leader_without_a_quorum_lease_grants_nothing() -> None:
    """F11, "a leader change while the old leader still sends heartbeats"."""
    pair = Pair("n1")
    pair.serve()
    assert pair.renew("n1", quorum_lease=False) is None


def test_change_waits_for_leases_of_the_previous_leader() -> None:
    pair = Pair("n1")
    pair.serve()
    pair.now += 1.0
    pair.elect()
    pair.write()
    assert pair.leader.next_time(pair.now) == pytest.approx(pair.now + T_PROCEED)
    assert pair.holders["n1"].serves(pair.now)
    assert pair.holders["n1"].deadline < pair.now + T_PROCEED


def test_new_leader_waits_for_a_dead_node_once_from_its_election() -> None:
    """scenarios.md: "writes wait T_proceed from its election at most, not twice"."""
    pair = Pair("n1", "n2", lm=7)
    pair.connect("n2")
    pair.serve("n1")
    pair.now += 1.0
    pair.elect()
    elected_at = pair.now
    pair.connect("n1")
    assert pair.leader.rr is None
    pair.now += 0.5
    pair.write()
    pair.stage("n1")
    assert pair.leader.next_time(pair.now) == pytest.approx(elected_at + T_PROCEED)
    assert pair.leader.advance(elected_at + T_PROCEED) == 8
    pair.now = elected_at + T_PROCEED + 0.1
    pair.write()
    pair.stage("n1")
    assert pair.leader.advance(pair.now) == 9


def test_new_leader_knows_rr_after_all_holders_answered() -> None:
    pair = Pair("n1", "n2", lm=7)
    for name in pair.holders:
        assert pair.leader.rr is None
        assert not pair.leader.visible(1)
        pair.connect(name)
    assert pair.leader.advance(pair.now) == 7


def test_new_leader_of_an_empty_cluster_knows_rr() -> None:
    assert Pair("n1").leader.rr == 0


def test_released_revision_stays_released_under_any_leader() -> None:
    pair = Pair("n1")
    pair.serve()
    pair.write()
    pair.stage("n1")
    pair.release()
    pair.elect()
    assert pair.holders["n1"].released == 1


def test_rr_includes_eventual_revisions() -> None:
    pair = Pair("n1")
    pair.serve()
    pair.write(strict=False)
    assert pair.leader.rr == 1
    assert pair.leader.advance(pair.now) is None
    strict = pair.write()
    pair.write(strict=False)
    assert (pair.leader.rr, pair.leader.lm) == (1, 3)
    pair.leader.staged(pair.holders["n1"].me, strict, pair.now)
    assert pair.leader.advance(pair.now) == 3


def test_stream_of_eventual_writes_fails_no_renewal() -> None:
    pair = Pair("n1")
    pair.serve()
    for _ in range(100):
        pair.write(strict=False)
    pair.now += 1.0
    pair.renew("n1")
    assert pair.holders["n1"].deadline == pytest.approx(pair.now + T_FENCE)


def test_batch_can_be_released_in_parts() -> None:
    pair = Pair("n1")
    pair.serve()
    pair.leader.committed(10, pair.now, (2, 9))
    me = pair.holders["n1"].me
    assert pair.leader.rr == 1
    pair.leader.staged(me, 5, pair.now)
    assert pair.leader.advance(pair.now) == 5
    pair.leader.staged(me, 10, pair.now)
    assert pair.leader.advance(pair.now) == 10


def test_vault_under_a_known_name_waits_for_readers_of_the_first() -> None:
    pair = Pair("n1")
    pair.serve()
    first = pair.holders["n1"]
    hello = pair.replace("n1", "other-v")
    assert pair.leader.hello(hello, pair.now) is HolderStanding.OTHER
    leave = pair.leader.registry.leave("n1", pair.now)
    assert not leave.now
    assert leave.until is not None
    pair.write()
    pair.leader.staged(pair.holders["n1"].me, 1, pair.now)
    assert judgements(pair) == {"n1": Judgement.PENDING}
    assert first.serves(pair.now)
    pair.now = leave.until
    assert pair.leader.registry.leave("n1", pair.now).now
    assert not first.serves(pair.now)
    pair.register(hello)
    assert pair.leader.hello(hello, pair.now) is HolderStanding.REGISTERED
    pair.serve()


def test_node_with_longer_leases_is_registered_again_and_waited_for_longer() -> None:
    pair = Pair("n1")
    pair.serve()
    pair.leader.registry.register(Registration("n2", "v", 30.0, proceed_s=TIMING.proceed_s(30.0)), pair.now)
    renew = Renew(pair.now, 0, HolderPhase.ACTIVE, True, 3.0, 3.31)
    assert isinstance(pair.leader.renew(HolderId("n2", "v", 1), renew, pair.now, quorum_lease=True), GrantMessage)
    pair.write()
    pair.stage("n1")
    assert pair.leader.next_time(pair.now) == pytest.approx(pair.now + TIMING.proceed_s(30.0))


def test_message_of_an_earlier_process_is_rejected() -> None:
    pair = Pair("n1")
    pair.serve()
    old = pair.holders["n1"]
    new = pair.process("n1", 2).running
    assert pair.leader.hello(new.hello(pair.now, 0), pair.now) is HolderStanding.REGISTERED
    assert pair.leader.hello(old.hello(pair.now, 0), pair.now) is HolderStanding.OLD_INCARNATION
    renew = old.renew(pair.now)
    assert pair.leader.renew(old.me, renew, pair.now, quorum_lease=True) is NotGranted.OLD_INCARNATION
    assert not pair.leader.fenced(old.me, FencedMessage(1, pair.now + 9), pair.now)


def test_unregistered_holder_is_granted_nothing() -> None:
    pair = Pair("n1")
    renew = Renew(1.0, 0, HolderPhase.ACTIVE, True, 3.0, 3.31)
    for stranger in (HolderId("n9", "v", 1), HolderId("n1", "other-v", 1)):
        assert pair.leader.renew(stranger, renew, pair.now, quorum_lease=True) is NotGranted.NOT_REGISTERED


@pytest.mark.parametrize("in_a_renewal", [False, True])
def test_acknowledgement_beyond_lm_counts_up_to_lm(in_a_renewal: bool) -> None:
    """It is of another history, such as one that a forced new cluster has ended."""
    pair = Pair("n1")
    pair.serve()
    holder = pair.holders["n1"].me
    if in_a_renewal:
        renew = Renew(pair.now, 10**9, HolderPhase.ACTIVE, False, 3.0, 3.31)
        pair.leader.renew(holder, renew, pair.now, quorum_lease=True)
    else:
        pair.leader.staged(holder, 10**9, pair.now)
    pair.write()
    assert judgements(pair) == {"n1": Judgement.PENDING}


def test_node_that_does_not_lead_does_nothing() -> None:
    releases = Releases(TIMING)
    holder = HolderId("n1", "v", 1)
    renew = Renew(1.0, 0, HolderPhase.ACTIVE, True, 3.0, 3.31)
    assert releases.renew(holder, renew, 1.0, quorum_lease=True) is NotGranted.NOT_LEADING
    assert (releases.rr, releases.advance(1.0), releases.next_time(1.0), releases.verdict(1.0)) == (None,) * 4
    with pytest.raises(NotLeading):
        releases.committed(1, 1.0, None)
    with pytest.raises(NotLeading):
        _ = releases.term


def test_lost_leadership_drops_everything() -> None:
    pair = Pair("n1", lm=5)
    pair.write()
    pair.leader.end_term()
    assert (pair.leader.leads, pair.leader.waiting, pair.leader.rr) == (False, 0, None)


@pytest.mark.parametrize(("latest", "strict"), [(0, None), (5, None), (9, (5, 6)), (9, (7, 6)), (9, (6, 10))])
def test_commits_out_of_order_stop_the_node(latest: int, strict: tuple[int, int] | None) -> None:
    pair = Pair(lm=5)
    with pytest.raises(InvariantBroken):
        pair.leader.committed(latest, 1.0, strict)


def test_verdict_on_released_and_unknown_revisions() -> None:
    pair = Pair("n1")
    pair.serve()
    pair.write(strict=False)
    verdict = pair.leader.verdict(pair.now, 1)
    assert verdict is not None
    assert verdict.outcome is VerdictOutcome.PROCEED
    assert pair.leader.verdict(pair.now, 2) is None
