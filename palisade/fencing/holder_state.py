"""A node's own side: may it serve from its vault now, and what has to happen until it may again (F1, F2, F3).

It serves only while it is ACTIVE and before the deadline of its lease (`lease.py`). That is checked at every read, on a
clock that goes on during suspend; nothing here has to run in time for it to be true: a holder whose process is paused
or dead just runs out. Once it has run out it is FENCED, even if a grant arrives later, until

- it has joined (`staging.py`): every strict event is in the vault or marked, up to its own LV at least, so it shows
  nothing that is not released,
- every recovery listener has succeeded since,
- it holds a lease, which it gets only for what it has staged.

Asking for leases works in every state and needs no cache, so recovery can't wait for itself.

All calls take `now`, seconds of CLOCK_BOOTTIME; time never goes back. Any call may find that the lease has run out.
After each one the caller publishes state and deadline to the fence page, and only then sends what the call returned,
opens the gate or lets a reader in.
"""

from __future__ import annotations

import enum

from palisade.fencing.errors import check
from palisade.fencing.lease import NEVER, GrantVerdict, Lease
from palisade.fencing.messages import (
    UNKNOWN,
    Behind,
    Fenced,
    Grant,
    Hello,
    HolderId,
    Join,
    Release,
    Renew,
    Stage,
    Staged,
    State,
    Welcome,
)
from palisade.fencing.stage_chain import Mark, Odd, Staging
from palisade.fencing.timing import Timing


class Lacks(enum.Enum):
    """Why a holder does not become ACTIVE now."""

    ALREADY = "it is active"
    STOPPED = "it is stopping"
    RECOVERY = "its recovery has not begun"
    LISTENERS = "a recovery listener has not succeeded yet"
    STAGING = "not every strict event up to its own LV is staged"
    LEASE = "it holds no lease"


class Holder:
    """One process of one node. `term`: the highest that the process before it had seen, if that is known."""

    __slots__ = (
        "_attempts", "_last_failure", "_lease", "_listeners_done", "_me", "_released", "_renew_at", "_retry_at",
        "_staging", "_state", "_timing", "_unsaid", "_welcomed",
    )  # fmt: skip

    def __init__(self, me: HolderId, timing: Timing, now: float, *, term: int = 0) -> None:
        self._me = me
        self._timing = timing
        self._lease = Lease(timing.fence_s, me.incarnation, now, term)
        self._staging = Staging(me.incarnation, now)
        self._state = State.FENCED
        self._unsaid = False
        self._released = 0
        self._welcomed: int | None = None
        self._listeners_done = False
        self._renew_at = NEVER
        self._retry_at = NEVER
        self._attempts = 0
        self._last_failure: str | None = None

    # What it is

    @property
    def me(self) -> HolderId:
        return self._me

    @property
    def state(self) -> State:
        """As of the last call that took the time; `serves` is what counts."""
        return self._state

    @property
    def deadline(self) -> float:
        """Until when it may serve if it is ACTIVE."""
        return self._lease.deadline

    @property
    def term(self) -> int:
        return self._lease.term

    @property
    def released(self) -> int:
        """RR as far as it was told: strict events beyond it are shown by nobody here."""
        return self._released

    @property
    def staged(self) -> int:
        return self._staging.staged

    @property
    def joined(self) -> bool:
        return self._staging.joined

    @property
    def gated(self) -> bool:
        """Whether the vault must not apply strict events beyond `released`. Open only once the page says FENCED."""
        return self._state is State.ACTIVE

    @property
    def retry_at(self) -> float:
        """When the recovery listeners may be tried (again)."""
        return self._retry_at

    @property
    def last_failure(self) -> str | None:
        return self._last_failure

    def serves(self, now: float) -> bool:
        return self._state is State.ACTIVE and self._lease.holds(now)

    def lease_age(self, now: float) -> float | None:
        """Seconds since t0 of the lease; None without one."""
        return now - self._lease.t0 if self._lease.holds(now) else None

    # The connection

    def hello(self, now: float, lv: int, generation: int = UNKNOWN) -> Hello:
        """Begins a connection; what came over the one before counts no more, except for grants and releases."""
        self._notice(now)
        self._welcomed = None
        self._renew_at = now
        chain = self._staging.begin_chain()
        lease_s, proceed_s = self._timing.fence_s, self._timing.proceed_s()
        return Hello(self._me, True, lease_s, self._state, chain, self.joined, self.staged, lv, proceed_s, generation)

    def on_welcome(self, welcome: Welcome, now: float) -> Fenced | None:
        """The promise that answers it, unless it serves."""
        self._notice(now)
        if not self._lease.see_term(welcome.term):
            return None
        self._welcomed = welcome.term
        self._see_released(welcome.released)
        return self.promise(now)

    @property
    def wants_join(self) -> bool:
        """Whether to call `join` as soon as the vault has nearly caught up."""
        here = self._welcomed is not None and self._state is not State.STOPPED
        return here and not self._staging.joined and not self._staging.joining

    def join(self, now: float, lv: int) -> Join:
        """Ask for the pending marks; the vault has everything up to `lv`. Only as long as `wants_join`."""
        self._notice(now)
        check(not self._staging.joined, "a holder that takes stages asks to join: it would lose its marks")
        return Join(self._staging.begin_join(lv), lv)

    def on_behind(self, behind: Behind, now: float) -> Fenced | None:
        """It can't be staged from where it is. Serving on would end with the lease, so it ends here, and is said."""
        self._notice(now)
        if not self._lease.see_term(behind.term) or behind.chain != self._staging.chain:
            return None
        return self.unmarked(now)

    def unmarked(self, now: float) -> Fenced | None:
        """The marks in the vault are not all there any more (a snapshot comes in): fenced, to join again."""
        self._notice(now)
        self._fence()
        self._unsaid = False
        self._staging.leave()
        return self.promise(now)

    # Stages and releases

    def on_stage(self, stage: Stage, now: float) -> Mark | Staged | Odd:
        """Mark what is new. What is there already is acknowledged again, for the answer may have been lost."""
        self._notice(now)
        if not self._lease.see_term(stage.term):
            return Odd.OTHER_CHAIN
        taken = self._staging.take(stage)
        if taken is Odd.HAD and self._staging.staged >= stage.upto:
            return Staged(self._staging.staged)
        return taken

    def marked(self, mark: Mark, now: float) -> Staged | None:
        """The marks are committed, and readers see them. None: they belong to a chain that is over."""
        self._notice(now)
        joined = self._staging.joined
        if not self._staging.marked(mark):
            return None
        self._lease.staged(now, self._staging.staged)
        if not joined:
            self._renew_at = now
        return Staged(self._staging.staged)

    def mark_failed(self, now: float) -> None:
        """The vault could not commit the marks: say Hello (and Join) again. The lease runs out meanwhile, if it
        must."""
        self._notice(now)
        if self._staging.joined:
            self._staging.begin_chain()
        else:
            self._staging.leave()

    def on_release(self, release: Release, now: float) -> bool:
        """Whether `released` has grown. A release holds whoever said it, and of whatever term."""
        self._notice(now)
        if self._state is State.ACTIVE and release.released > self._staging.staged:
            # The leader took this lease for over, and it is not: a clock is beyond the bound. Better late than never.
            self._fence()
            self._unsaid = True
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
        """For every state: a fenced node that speaks is told apart from a dead one."""
        self._notice(now)
        self._renew_at = now + self._timing.renew_every_s
        asks = self._staging.joined and self._state is not State.STOPPED
        t0 = self._lease.ask(now) if asks else now
        return Renew(t0, self.staged, self._state, asks, self._timing.fence_s, self._timing.proceed_s())

    def on_grant(self, grant: Grant, now: float) -> GrantVerdict:
        """The deadline may have moved, if this is ACCEPTED. A holder that has run out stays fenced all the same."""
        self._notice(now)
        if self._state is State.STOPPED:
            return GrantVerdict.STOPPED
        return self._lease.offer(grant, now, self._staging.staged)

    def promise(self, now: float) -> Fenced | None:
        """For the leader that has welcomed it: so nobody waits for a node that serves nothing. None: it serves, or
        there is nobody to tell."""
        self._notice(now)
        if self._state is State.ACTIVE or self._welcomed is None:
            return None
        self._renew_at = now
        return Fenced(self._welcomed, self._lease.void(now))

    # Its life

    def tick(self, now: float) -> bool:
        """True, once: it serves no more, as was noticed now or in any call since. Publish FENCED, open the gate,
        promise.

        Calls that fence on purpose (`unmarked`, `on_behind`, `stop`) are not told of: their caller knows.
        """
        self._notice(now)
        unsaid, self._unsaid = self._unsaid, False
        return unsaid

    def _notice(self, now: float) -> None:
        if self._state is State.ACTIVE and not self._lease.holds(now):
            self._fence()
            self._unsaid = True

    def _fence(self) -> None:
        if self._state is State.ACTIVE:
            self._state = State.FENCED
            self._listeners_done = False
            self._staging.leave()

    def wants_recovery(self, now: float) -> bool:
        """Whether to begin: a leader is there, and the last failure is long enough ago."""
        return self._state is State.FENCED and self._welcomed is not None and now >= self._retry_at

    def begin_recovery(self, now: float) -> None:
        """The recovery listeners begin to run."""
        self._notice(now)
        if self._state is State.FENCED:
            self._state = State.RECOVERING
            self._listeners_done = False

    def recovered(self, now: float) -> None:
        """Every recovery listener has succeeded."""
        self._notice(now)
        if self._state is State.RECOVERING:
            self._listeners_done = True
            self._attempts = 0
            self._last_failure = None

    def recovery_failed(self, now: float, why: str) -> float:
        """A listener has failed: it stays fenced; returns when to try again."""
        self._notice(now)
        if self._state is State.RECOVERING:
            self._state = State.FENCED
            wait_s = self._timing.recovery_retry_min_s * 2**self._attempts
            self._attempts = min(self._attempts + 1, 30)
            self._retry_at = now + min(wait_s, self._timing.recovery_retry_max_s)
            self._last_failure = why
        return self._retry_at

    def activate(self, now: float, lv: int) -> Lacks | None:
        """None: ACTIVE from now on. `lv` is LV with the gate closed: no commit of the vault is under way or to come
        before this returns."""
        self._notice(now)
        lacks = self._lacks(now, lv)
        if lacks is None:
            self._state = State.ACTIVE
        return lacks

    def _lacks(self, now: float, lv: int) -> Lacks | None:
        if self._state is not State.RECOVERING:
            return {State.ACTIVE: Lacks.ALREADY, State.STOPPED: Lacks.STOPPED}.get(self._state, Lacks.RECOVERY)
        if not self._listeners_done:
            return Lacks.LISTENERS
        if not self._staging.joined or self._staging.staged < lv:
            return Lacks.STAGING
        return None if self._lease.holds(now) else Lacks.LEASE

    def stop(self, now: float) -> Fenced | None:
        """Polite: it serves no more, and the promise lets nobody wait for it. The page says FENCED before it leaves."""
        self._notice(now)
        self._fence()
        self._unsaid = False
        self._state = State.STOPPED
        return self.promise(now)
