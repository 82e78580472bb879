"""The holder's side of fencing: whether the node may serve from its vault, and how it gets there (F1, F2, F3).

A holder serves only while it is ACTIVE and before the deadline of its lease (`lease.py`). Every read checks this, on a
clock that continues during suspend, so it does not depend on timers: the lease of a paused or dead process simply
expires. A holder whose lease has expired is FENCED, even if a grant arrives later, until

- it has joined (`stage_chain.py`): every strict event is in the vault or marked, at least up to its own LV, so it shows
  nothing unreleased,
- every recovery listener has succeeded since,
- it holds a lease, which is granted only for what it has staged.

Renewals work in every state and need no cache, so recovery cannot wait for itself.

All calls take `now`, seconds of CLOCK_BOOTTIME, which never goes back. Any call may find that the lease has expired.
After each call the caller publishes state and deadline to the fence page. Only then it sends what the call returned,
opens the gate or admits a reader.
"""

from __future__ import annotations

import enum

from palisade.fencing.errors import check
from palisade.fencing.lease import NEVER, FenceLease, GrantVerdict
from palisade.fencing.messages import (
    UNKNOWN,
    Behind,
    FencedMessage,
    GrantMessage,
    Hello,
    HolderId,
    HolderPhase,
    JoinMessage,
    Release,
    Renew,
    StagedMessage,
    StageMessage,
    WelcomeMessage,
)
from palisade.fencing.stage_chain import Mark, NotMarked, StageChain
from palisade.fencing.timing import FenceTiming


class NotActivated(enum.Enum):
    """Why a holder does not become ACTIVE now."""

    ALREADY = "already active"
    STOPPED = "stopping"
    RECOVERY = "recovery has not begun"
    LISTENERS = "a recovery listener has not succeeded yet"
    STAGING = "not every strict event up to LV is staged"
    LEASE = "no lease"


class Holder:
    """One process of one node. `term`: the highest term seen by the previous process, if known."""

    __slots__ = (
        "_attempts", "_last_failure", "_lease", "_listeners_done", "_me", "_released", "_renew_at", "_retry_at",
        "_staging", "_state", "_timing", "_unreported", "_welcomed",
    )  # fmt: skip

    def __init__(self, me: HolderId, timing: FenceTiming, now: float, *, term: int = 0) -> None:
        self._me = me
        self._timing = timing
        self._lease = FenceLease(timing.fence_s, me.incarnation, now, term)
        self._staging = StageChain(me.incarnation, now)
        self._state = HolderPhase.FENCED
        self._unreported = False
        self._released = 0
        self._welcomed: int | None = None
        self._listeners_done = False
        self._renew_at = NEVER
        self._retry_at = NEVER
        self._attempts = 0
        self._last_failure: str | None = None

    # Status

    @property
    def me(self) -> HolderId:
        return self._me

    @property
    def state(self) -> HolderPhase:
        """As of the last call with `now`. Use `serves` to decide about a read."""
        return self._state

    @property
    def deadline(self) -> float:
        """Until when the holder may serve if it is ACTIVE."""
        return self._lease.deadline

    @property
    def term(self) -> int:
        return self._lease.term

    @property
    def released(self) -> int:
        """RR as last received. Strict events beyond it must not be shown."""
        return self._released

    @property
    def staged(self) -> int:
        return self._staging.staged

    @property
    def joined(self) -> bool:
        return self._staging.joined

    @property
    def gated(self) -> bool:
        """Whether the vault must not apply strict events beyond `released`. The gate opens after the page is FENCED."""
        return self._state is HolderPhase.ACTIVE

    @property
    def retry_at(self) -> float:
        """When the recovery listeners may run again."""
        return self._retry_at

    @property
    def last_failure(self) -> str | None:
        return self._last_failure

    def serves(self, now: float) -> bool:
        return self._state is HolderPhase.ACTIVE and self._lease.holds(now)

    def lease_age(self, now: float) -> float | None:
        """Seconds since t0 of the lease; None without one."""
        return now - self._lease.t0 if self._lease.holds(now) else None

    # The connection

    def hello(self, now: float, lv: int, generation: int = UNKNOWN) -> Hello:
        """Begin a connection. Later messages of earlier connections are ignored, except for grants and releases."""
        self._check_lease(now)
        self._welcomed = None
        self._renew_at = now
        chain = self._staging.begin_chain()
        lease_s, proceed_s = self._timing.fence_s, self._timing.proceed_s()
        return Hello(self._me, True, lease_s, self._state, chain, self.joined, self.staged, lv, proceed_s, generation)

    def on_welcome(self, welcome: WelcomeMessage, now: float) -> FencedMessage | None:
        """Returns the promise to answer with, unless the holder serves."""
        self._check_lease(now)
        if not self._lease.see_term(welcome.term):
            return None
        self._welcomed = welcome.term
        self._see_released(welcome.released)
        return self.promise(now)

    @property
    def wants_join(self) -> bool:
        """Whether to call `join` as soon as the vault has nearly caught up."""
        connected = self._welcomed is not None and self._state is not HolderPhase.STOPPED
        return connected and not self._staging.joined and not self._staging.joining

    def join(self, now: float, lv: int) -> JoinMessage:
        """Request stages; the vault has everything up to `lv`. Only while `wants_join`."""
        self._check_lease(now)
        check(not self._staging.joined, "join of a joined holder, which would lose its marks")
        return JoinMessage(self._staging.begin_join(lv), lv)

    def on_behind(self, behind: Behind, now: float) -> FencedMessage | None:
        """The leader cannot stage from this holder's position. It would lose its lease anyway, so it fences itself now
        and returns the promise."""
        self._check_lease(now)
        if not self._lease.see_term(behind.term) or behind.chain != self._staging.chain:
            return None
        return self.unmarked(now)

    def unmarked(self, now: float) -> FencedMessage | None:
        """The marks in the vault become incomplete (a snapshot is being loaded). The holder is fenced and joins
        again."""
        self._check_lease(now)
        self._fence()
        self._unreported = False
        self._staging.leave()
        return self.promise(now)

    # Stages and releases

    def on_stage(self, stage: StageMessage, now: float) -> Mark | StagedMessage | NotMarked:
        """Returns the rows to mark. What is already staged is acknowledged again, because the answer may have been
        lost."""
        self._check_lease(now)
        if not self._lease.see_term(stage.term):
            return NotMarked.OTHER_CHAIN
        taken = self._staging.take(stage)
        if taken is NotMarked.HAD and self._staging.staged >= stage.upto:
            return StagedMessage(self._staging.staged)
        return taken

    def marked(self, mark: Mark, now: float) -> StagedMessage | None:
        """The marks are committed and visible to readers. None: they belong to an earlier chain."""
        self._check_lease(now)
        joined = self._staging.joined
        if not self._staging.marked(mark):
            return None
        if self._lease.kept:
            self._lease.staged(now, self._staging.staged)
        if not joined:
            self._renew_at = now
        return StagedMessage(self._staging.staged)

    def mark_failed(self, now: float) -> None:
        """The vault could not commit the marks: send Hello (and Join) again. The lease may expire meanwhile."""
        self._check_lease(now)
        if self._staging.joined:
            self._staging.begin_chain()
        else:
            self._staging.leave()

    def on_release(self, release: Release, now: float) -> bool:
        """Whether `released` has grown. A release is valid from any sender and of any term."""
        self._check_lease(now)
        if self._state is HolderPhase.ACTIVE and release.released > self._staging.staged:
            # The leader counted this lease as expired while it is still alive: a clock exceeds the drift bound.
            self._fence()
            self._unreported = True
        return self._see_released(release.released)

    def _see_released(self, released: int | None) -> bool:
        if released is None or released <= self._released:
            return False
        self._released = released
        return True

    # The lease

    def next_renewal(self) -> float:
        """When `renew` is due."""
        return self._renew_at

    def renew(self, now: float) -> Renew:
        """In every state, so that the leader can distinguish a fenced node from a dead one."""
        self._check_lease(now)
        self._renew_at = now + self._timing.renew_every_s
        asks = self._staging.joined and self._state is not HolderPhase.STOPPED
        t0 = self._lease.ask(now) if asks else now
        return Renew(t0, self.staged, self._state, asks, self._timing.fence_s, self._timing.proceed_s())

    def on_grant(self, grant: GrantMessage, now: float) -> GrantVerdict:
        """The deadline may move if this is ACCEPTED. A holder whose lease has expired stays fenced even then."""
        self._check_lease(now)
        if self._state is HolderPhase.STOPPED:
            return GrantVerdict.STOPPED
        return self._lease.offer(grant, now, self._staging.staged)

    def promise(self, now: float) -> FencedMessage | None:
        """The promise for the leader of the last Welcome, so that no release waits for a node that serves nothing.
        None: the holder serves, or is not connected."""
        self._check_lease(now)
        if self._state is HolderPhase.ACTIVE or self._welcomed is None:
            return None
        self._renew_at = now
        return FencedMessage(self._welcomed, self._lease.void(now))

    # States

    def tick(self, now: float) -> bool:
        """True, once, if the holder has stopped serving since the last call. Then publish FENCED, open the gate, and
        send the promise.

        Calls that fence on purpose (`unmarked`, `on_behind`, `stop`) are not reported: their caller knows.
        """
        self._check_lease(now)
        unreported, self._unreported = self._unreported, False
        return unreported

    def _check_lease(self, now: float) -> None:
        if self._state is HolderPhase.ACTIVE and not self._lease.holds(now):
            self._fence()
            self._unreported = True

    def _fence(self) -> None:
        if self._state is HolderPhase.ACTIVE:
            self._state = HolderPhase.FENCED
            self._listeners_done = False
            self._staging.leave()

    def wants_recovery(self, now: float) -> bool:
        """Whether to begin recovery: a leader has answered, and the retry delay is over."""
        return self._state is HolderPhase.FENCED and self._welcomed is not None and now >= self._retry_at

    def begin_recovery(self, now: float) -> None:
        """Call when the recovery listeners begin to run."""
        self._check_lease(now)
        if self._state is HolderPhase.FENCED:
            self._state = HolderPhase.RECOVERING
            self._listeners_done = False

    def recovered(self, now: float) -> None:
        """Call when every recovery listener has succeeded."""
        self._check_lease(now)
        if self._state is HolderPhase.RECOVERING:
            self._listeners_done = True
            self._attempts = 0
            self._last_failure = None

    def recovery_failed(self, now: float, why: str) -> float:
        """Call when a listener has failed. The holder stays fenced. Returns when to retry."""
        self._check_lease(now)
        if self._state is HolderPhase.RECOVERING:
            self._state = HolderPhase.FENCED
            wait_s = self._timing.recovery_retry_min_s * 2**self._attempts
            self._attempts = min(self._attempts + 1, 30)
            self._retry_at = now + min(wait_s, self._timing.recovery_retry_max_s)
            self._last_failure = why
        return self._retry_at

    def activate(self, now: float, lv: int) -> NotActivated | None:
        """None: the holder is now ACTIVE. `lv`: LV with the gate closed; the vault must not commit before this
        returns."""
        self._check_lease(now)
        lacks = self._lacks(now, lv)
        if lacks is None:
            self._state = HolderPhase.ACTIVE
        return lacks

    def _lacks(self, now: float, lv: int) -> NotActivated | None:
        if self._state is not HolderPhase.RECOVERING:
            return {HolderPhase.ACTIVE: NotActivated.ALREADY, HolderPhase.STOPPED: NotActivated.STOPPED}.get(
                self._state, NotActivated.RECOVERY
            )
        if not self._listeners_done:
            return NotActivated.LISTENERS
        if not self._staging.joined or self._staging.staged < lv:
            return NotActivated.STAGING
        return None if self._lease.holds(now) else NotActivated.LEASE

    def stop(self, now: float) -> FencedMessage | None:
        """Stop serving. Returns the promise, so that no release waits for this node. Publish FENCED before sending."""
        self._check_lease(now)
        self._fence()
        self._unreported = False
        self._state = HolderPhase.STOPPED
        return self.promise(now)
