"""Faults for `fencing_world.py`, each in a subclass of a production machine or in a rule of the world around it.

They prove the model check: it must find every one. Where a fault only shows under special circumstances (a clock beyond
its bound, a leader that never learns of its end), the circumstances are a scope of their own, in which the protocol
without the fault holds: `BASES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from palisade.fencing.holder_state import Holder, NotActivated
from palisade.fencing.lease import FenceLease, GrantVerdict
from palisade.fencing.messages import FencedMessage, GrantMessage, Hello, HolderId, HolderPhase, Renew, StageMessage
from palisade.fencing.registry import HolderStanding, Holding, Registration, Registry
from palisade.fencing.release import NotGranted, Releases
from palisade.fencing.stage_chain import Mark, NotMarked, StageChain
from palisade.fencing.timing import FenceTiming
from tests.support.fencing_parts import TIMING, Scope


def holder_with(lease: type[FenceLease] = FenceLease, chain: type[StageChain] = StageChain) -> type[Holder]:
    class WithParts(Holder):
        def __init__(self, me: HolderId, timing: FenceTiming, now: float, *, term: int = 0) -> None:
            super().__init__(me, timing, now, term=term)
            self._lease = lease(timing.fence_s, me.incarnation, now, term)
            self._staging = chain(me.incarnation, now)

    return WithParts


class FromReceipt(FenceLease):
    """lease_from_receipt: it runs from the arrival of the grant."""

    def offer(self, grant: GrantMessage, now: float, staged: int) -> GrantVerdict:
        verdict = super().offer(grant, now, staged)
        if verdict is GrantVerdict.ACCEPTED:
            self._t0 = max(self._t0, now)
        return verdict


class Unrequired(FenceLease):
    """ignore_required: it accepts grants that require more than it has staged."""

    def _judge(self, grant: GrantMessage, now: float, staged: int) -> GrantVerdict:
        return super()._judge(grant, now, grant.required)


class AnyTerm(FenceLease):
    """stale_term: it accepts grants of leaders that it knows to be deposed."""

    def see_term(self, term: int) -> bool:
        super().see_term(term)
        return True


class AnyIncarnation(FenceLease):
    """other_incarnation: it accepts grants that the previous process requested, before and after a promise of its
    own."""

    def _judge(self, grant: GrantMessage, now: float, staged: int) -> GrantVerdict:
        if grant.incarnation != self._incarnation:
            return GrantVerdict.KEPT if staged < grant.required else GrantVerdict.ACCEPTED
        return super()._judge(grant, now, staged)


class FaithlessHolder(Holder):
    """no_promise: it announces that it serves nothing, and accepts grants that are in flight nevertheless."""

    def promise(self, now: float) -> FencedMessage | None:
        if self._state is HolderPhase.ACTIVE or self._welcomed is None:
            return None
        return FencedMessage(self._welcomed, max(now, self._lease._asked))


class HastyHolder(Holder):
    """unstaged_activation: it becomes active with unreleased events in its vault that are not marked."""

    def _lacks(self, now: float, lv: int) -> NotActivated | None:
        return super()._lacks(now, min(lv, self._staging.staged))


class AnyChain(StageChain):
    """other_chain: it accepts a stage that was in flight before it joined again."""

    def take(self, stage: StageMessage) -> Mark | NotMarked:
        return super().take(replace(stage, chain=self._chain))


class Gapless(StageChain):
    """gap: it accepts a stage that begins after the end of the last one."""

    def take(self, stage: StageMessage) -> Mark | NotMarked:
        after = min(stage.after, self._received if self._join_lv is None else self._join_lv)
        return super().take(replace(stage, after=after))


class NoStage(Registry):
    """no_stage: a change is released as soon as it is committed."""

    def blocks(self, revision: int, now: float, latest: int) -> bool:
        return False

    def safe_up_to(self, now: float, latest: int) -> int:
        return latest


class NoReset(Registry):
    """no_reset: a new leader ignores leases from before its term."""

    def begin(self, registered: Iterable[Registration], now: float) -> None:
        super().begin(registered, now)
        for held in self:
            held.leases.clear()


class ByName(Registry):
    """ghost: messages of another vault with the same name count for the first one."""

    def find(self, holder: HolderId) -> Holding | None:
        return self._by_node.get(holder.node)

    def standing(self, hello: Hello) -> HolderStanding:
        return HolderStanding.NEW if self._by_node.get(hello.holder.node) is None else HolderStanding.REGISTERED


class ReadsAtOnce(Releases):
    """new_leader_reads: a new leader treats all committed changes as released."""

    def begin_term(self, term: int, now: float, registered: Iterable[Registration], lm: int) -> None:
        super().begin_term(term, now, registered, lm)
        self._waiting.clear()
        self._rr = lm


class KnowsZero(Releases):
    """new_leader_rr0: a new leader that does not know RR assumes 0."""

    def begin_term(self, term: int, now: float, registered: Iterable[Registration], lm: int) -> None:
        super().begin_term(term, now, registered, lm)
        self._rr = 0


class Unbound(Releases):
    """unbound_grant: grants require nothing, and the verdict counts from the last one, whenever it was."""

    def renew(self, holder: HolderId, renew: Renew, now: float, *, quorum_lease: bool) -> GrantMessage | NotGranted:
        granted = super().renew(holder, renew, now, quorum_lease=quorum_lease)
        held = self._registry.find(holder)
        if not isinstance(granted, GrantMessage) or held is None:
            return granted
        held.leases.clear()
        held.leases.append((0, now))
        return replace(granted, required=0)


class Unnoted(Releases):
    """unnoted_grant: it does not record its grants."""

    def renew(self, holder: HolderId, renew: Renew, now: float, *, quorum_lease: bool) -> GrantMessage | NotGranted:
        held = self._registry.find(holder)
        before = list(held.leases) if held is not None else []
        granted = super().renew(holder, renew, now, quorum_lease=quorum_lease)
        if held is not None:
            held.leases.clear()
            held.leases.extend(before)
        return granted


class AnyPromise(Releases):
    """promise_of_another_term: a promise made to another leader counts."""

    def fenced(self, holder: HolderId, fenced: FencedMessage, now: float) -> bool:
        return super().fenced(holder, replace(fenced, term=self.term), now)


class OldPromise(Releases):
    """promise_before_grant: a promise counts although a grant was made after it."""

    def fenced(self, holder: HolderId, fenced: FencedMessage, now: float) -> bool:
        return super().fenced(holder, replace(fenced, at=1e9), now)


class AnyTimes(Releases):
    """times_of_before: it grants by the record of a process that had shorter leases."""

    def renew(self, holder: HolderId, renew: Renew, now: float, *, quorum_lease: bool) -> GrantMessage | NotGranted:
        held = self._registry.find(holder)
        if held is not None:
            of = held.registration
            renew = replace(renew, lease_s=min(renew.lease_s, of.lease_s), proceed_s=min(renew.proceed_s, of.proceed_s))
        return super().renew(holder, renew, now, quorum_lease=quorum_lease)


class OwnTimes(Registry):
    """leaders_own_times: it counts with its own times, whatever the holder needs."""

    def begin(self, registered: Iterable[Registration], now: float) -> None:
        super().begin(registered, now)
        self._count()

    def register(self, registration: Registration, now: float) -> None:
        super().register(registration, now)
        self._count()

    def _count(self) -> None:
        for held in self:
            held.proceed_s = self._length(held)

    def _length(self, held: Holding) -> float:
        return self._timing.proceed_s()


class OwnDrift(OwnTimes):
    """leaders_own_drift: it knows the length of leases, but not that the clocks of holders may be worse."""

    def _length(self, held: Holding) -> float:
        return self._timing.proceed_s(held.registration.lease_s)


class HelloIsPromise(Releases):
    """hello_is_promise: a Hello of a node that serves nothing counts as a promise."""

    def hello(self, hello: Hello, now: float) -> HolderStanding:
        standing = super().hello(hello, now)
        held = self._registry.find(hello.holder)
        if held is not None and hello.state is not HolderPhase.ACTIVE:
            held.leases.clear()
        return standing


PATIENT = FenceTiming(fence_s=2.0, drift=0.0, margin_s=1e6)
"""No holder is ever judged fenced by time."""
DRIFT = FenceTiming(fence_s=2.0, drift=0.1, margin_s=2.0 * 2 * 0.1**2 / 0.9)

LONG = FenceTiming(fence_s=4.0, drift=0.0, margin_s=0.0)

PLAIN = Scope()
DRIFTING = replace(
    PLAIN, timing=DRIFT, rates=(0.9, 1.0, 1.1), leader_rates=(1.1, 1.0, 0.9), tick_s=0.2, ticks=30, weights={"tick": 5}
)
"""Clocks as fast and as slow as the bound allows, and the least margin."""
SLOW = replace(DRIFTING, timing=TIMING, timings=(DRIFT,), rates=(0.9,), leader_rates=(1.0,))
"""Only the holders know that their clocks are bad."""
DEAF = replace(
    PLAIN, timing=PATIENT, asks_quorum=False, powers=False, holders=1, weights={"depose": 0, "hello": 2, "elect": 3}
)
"""Leaders that never learn of their end, and continue to grant. Then only acknowledgements release, and terms must
protect them."""
ALONE = replace(PLAIN, holders=1, terms=3, leader_nodes=1, weights={"kill": 4, "lose": 3, "elect": 2})
"""One holder that is often killed, and one node that is elected repeatedly, with messages of its earlier terms."""
THREE = replace(PLAIN, holders=3, revisions=4, terms=3, eventual=(2,))
"""Three holders; one of the revisions concerns none of them."""
RETURNS = {
    "reboot": 2.0, "power": 0.7, "renew": 1, "deliver": 8, "hold": 3, "arrive": 3, "calm": 2, "succeed": 1, "probe": 3,
    "tick": 2,
}  # fmt: skip
RETURNING = replace(ALONE, weights={}, moves=RETURNS)
"""Processes and leaders return, and receive messages that were in flight for a long time."""
JOINS = {
    "reboot": 1.0, "deliver": 8, "hold": 1, "arrive": 1, "calm": 0.7, "stage": 3, "mark": 3, "join": 2, "listen": 3,
    "activate": 4, "apply": 3, "commit": 2, "learn": 3, "advance": 3, "release": 1, "renew": 1, "probe": 1, "tick": 0.7,
}  # fmt: skip
JOINING = replace(PLAIN, revisions=6, moves=JOINS)
"""Holders join while changes are written."""
TIMES = {
    "probe": 2, "tick": 3, "renew": 1, "deliver": 6, "lose": 1, "reboot": 0.3, "stage": 2, "mark": 2, "join": 2,
    "listen": 2, "activate": 3, "register": 0.5, "apply": 1, "calm": 0.3, "release": 1, "quorum": 1, "succeed": 0.2,
}  # fmt: skip
UNLIKE = replace(ALONE, weights={}, timings=(LONG, TIMING), ticks=20, moves=TIMES)
"""A holder that is restarted repeatedly, with longer or shorter leases than the leader is configured with."""
GRANT_HELD = ("renew", "deliver", "hold", "power", "start")
PROMISE_HELD = ("reboot", "deliver", "deliver", "hold")
STAGES_HELD = ("commit", "learn", "stage", "stage", "commit", "learn", "stage", "stage", "hold", "hold")
RETIMED = (
    "reboot", "deliver", "deliver", "deliver", "join", "deliver", "stage", "deliver", "mark", "deliver", "listen",
    "renew", "deliver", "deliver", "activate",
)  # fmt: skip
JOINED = ("reboot", "deliver", "deliver", "deliver", "join", "deliver", "stage", "deliver", "mark")
BASES = {
    "plain": PLAIN, "drifting": DRIFTING, "deaf": DEAF, "alone": ALONE, "three": THREE, "returning": RETURNING,
    "joining": JOINING, "unlike": UNLIKE, "slow": SLOW,
}  # fmt: skip

FAULTS = {
    "lease_from_receipt": replace(PLAIN, holder=holder_with(FromReceipt)),
    "grant_without_quorum": replace(PLAIN, asks_quorum=False, weights={"depose": 0}),
    "no_stage": replace(PLAIN, registry=NoStage),
    "ignore_required": replace(PLAIN, holder=holder_with(Unrequired)),
    "no_promise": replace(PLAIN, holder=FaithlessHolder),
    "no_reset": replace(PLAIN, registry=NoReset),
    "new_leader_reads": replace(PLAIN, releases=ReadsAtOnce),
    "new_leader_rr0": replace(PLAIN, releases=KnowsZero, answers_at_rr=True),
    "unbound_grant": replace(ALONE, releases=Unbound),
    "unnoted_grant": replace(PLAIN, releases=Unnoted),
    "stale_term": replace(DEAF, holder=holder_with(AnyTerm)),
    "drift_beyond_the_bound": replace(DRIFTING, rates=(0.7, 1.0, 1.3), leader_rates=(1.3, 1.0, 0.7)),
    "times_of_before": replace(UNLIKE, prelude=RETIMED, releases=AnyTimes),
    "leaders_own_times": replace(UNLIKE, registry=OwnTimes),
    "leaders_own_drift": replace(SLOW, registry=OwnDrift),
    "ghost": replace(PLAIN, registry=ByName, weights={"replace": 10}),
    "name_taken_over_at_once": replace(
        ALONE, checks_vault=False, leader_nodes=2, weights={"replace": 10, "register": 3, "elect": 3}
    ),
    "other_incarnation": replace(RETURNING, prelude=GRANT_HELD, holder=holder_with(AnyIncarnation)),
    "promise_of_another_term": replace(RETURNING, prelude=PROMISE_HELD, releases=AnyPromise),
    "promise_before_grant": replace(RETURNING, prelude=PROMISE_HELD, releases=OldPromise),
    "hello_is_promise": replace(RETURNING, releases=HelloIsPromise),
    "other_chain": replace(JOINING, prelude=STAGES_HELD, holder=holder_with(chain=AnyChain)),
    "gap": replace(PLAIN, holder=holder_with(chain=Gapless), weights={"lose": 3}),
    "early_staged": replace(PLAIN, marks_first=False),
    "unstaged_activation": replace(JOINING, prelude=JOINED, holder=HastyHolder),
    "open_gate": replace(PLAIN, gated=False),
    "page_left_open": replace(PLAIN, fences_at_start=False, weights={"kill": 4}),
    "unchecked_reader": replace(PLAIN, checks=False),
}
