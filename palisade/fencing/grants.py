"""The leader's record of one holder: which leases may still let it serve, and what it has staged.

A grant at time t, with everything up to `after` required, may let the holder serve until t + T_proceed without any
revision beyond `after`; never without one up to it. So the leases that matter for revision r are those granted before
r was committed, that is, with `after` < r, and of these the last. Keeping one pair (after, t) for each `after` is
enough: a commit costs nothing here, whatever the number of holders, and two revisions that wait for the same lease end
together.

The time of a grant is noted before the grant leaves. A new leader knows of no grants, so it takes it that each holder
was granted a lease at the moment at which its term began, requiring nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from palisade.fencing.lease import NEVER
from palisade.fencing.messages import Fenced, Renew, State
from palisade.fencing.timing import Timing
from palisade.fencing.verdict import Facts


@dataclass(frozen=True, slots=True)
class Registration:
    """The replicated record of a holder: of its data folder, of how long its leases are and have to be counted at
    least, and whether it knows leases. So every leader counts with that, whatever its own times are."""

    node: str
    vault: str
    lease_s: float
    fences: bool = True
    proceed_s: float = 0.0

    def covers(self, renew: Renew) -> bool:
        """Whether whoever counts by this record waits for that lease in full."""
        return renew.lease_s <= self.lease_s and renew.proceed_s <= self.proceed_s


class Holding:
    """Of one registered holder, in one term of one leader."""

    __slots__ = (
        "asked", "fenced_at", "granted_at", "heard_at", "incarnation", "leases", "leaving", "proceed_s", "registration",
        "said", "staged",
    )  # fmt: skip

    def __init__(self, registration: Registration, timing: Timing) -> None:
        self.registration = registration
        self.proceed_s = max(timing.proceed_s(registration.lease_s), registration.proceed_s)
        self.leases: deque[tuple[int, float]] = deque()
        """(after, granted at), both rising. Empty: no lease that this leader or one before it granted can be alive."""
        self.staged = 0
        self.incarnation: int | None = None
        self.asked = NEVER
        """The latest t0 that this incarnation was granted in this term."""
        self.leaving = False
        self.granted_at: float | None = None
        self.heard_at: float | None = None
        self.said: State | None = None
        """What it called its state when it was last heard of. For people: no verdict rests on it."""
        self.fenced_at: float | None = None

    def term_began(self, now: float) -> None:
        """Whatever was granted before, was granted by now."""
        self.leases.append((0, now))

    def hear(self, incarnation: int, now: float) -> bool:
        """A message of it has come; False: of a process that was before. The page of that one is fenced by now."""
        if self.incarnation is not None and incarnation < self.incarnation:
            return False
        if incarnation != self.incarnation:
            self.incarnation, self.asked = incarnation, NEVER
        self.heard_at = now
        return True

    def grant(self, t0: float, now: float, after: int) -> None:
        """It is about to be granted a lease for who has staged up to `after`."""
        self.asked = max(self.asked, t0)
        self.granted_at, self.fenced_at = now, None
        self._forget(now)
        if self.leases and self.leases[-1][0] == after:
            self.leases.pop()
        self.leases.append((after, now))

    def acknowledge(self, upto: int) -> None:
        self.staged = max(self.staged, upto)

    def promise(self, fenced: Fenced, now: float) -> bool:
        """It serves nothing, and takes no grant that it asked for up to `fenced.at`. Does that void every lease?

        It made the promise after it heard from this leader, so after every grant of an earlier one; and if it was
        granted nothing since that it asked for later, there is none at all. `fenced.term` was compared with the
        leader's own.
        """
        if not self.registration.fences or fenced.at < self.asked:
            return False
        self.leases.clear()
        self.fenced_at = now
        self.said = State.FENCED if self.said is State.ACTIVE else self.said
        return True

    def safe_up_to(self, now: float, latest: int) -> int:
        """Nobody can be served by this holder anything that a revision up to here replaced; `latest`: the latest
        one."""
        if not self.registration.fences:
            return self.staged
        self._forget(now)
        return max(self.staged, self.leases[0][0] if self.leases else latest)

    def lease_before(self, revision: int) -> float | None:
        """When the last lease was granted that may let it serve without this revision."""
        found = None
        for after, granted_at in self.leases:
            if after >= revision:
                break
            found = granted_at
        return found

    def facts(self, revision: int) -> Facts:
        of = self.registration
        return Facts(
            of.node, of.fences, self.staged, self.lease_before(revision), self.fenced_at is not None, self.proceed_s
        )

    def safe_at(self, now: float) -> float | None:
        """When none of its leases is alive, if it is granted no more; None: never, but by its own word."""
        if not self.registration.fences:
            return None
        self._forget(now)
        return self.leases[-1][1] + self.proceed_s if self.leases else now

    def _forget(self, now: float) -> None:
        """What has run out, and what only concerns revisions that are acknowledged."""
        leases = self.leases
        while leases and now >= leases[0][1] + self.proceed_s:
            leases.popleft()
        while len(leases) > 1 and leases[1][0] <= self.staged:
            leases.popleft()
