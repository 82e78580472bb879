"""The leader's record of one holder: its possibly live leases, and what it has staged.

A grant at time t that requires everything up to `after` lets the holder serve until t + T_proceed at the latest, and
only with everything up to `after` staged. So the leases that matter for revision r are those granted before r was
committed, that is, with `after` < r, and of these the last. One pair (after, t) per distinct `after` is enough: a
commit costs nothing here, whatever the number of holders, and two revisions that wait for the same lease end together.

The time of a grant is recorded before the grant is sent. A new leader knows no earlier grants. It assumes that each
holder was granted a lease that requires nothing when its term began.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from palisade.fencing.lease import NEVER
from palisade.fencing.messages import FencedMessage, HolderPhase, Renew
from palisade.fencing.timing import FenceTiming
from palisade.fencing.verdict import Facts


@dataclass(frozen=True, slots=True)
class Registration:
    """The replicated record of a holder: its data folder (`vault`), the length of its leases, the minimum T_proceed for
    them, and whether it supports leases (`fences`). Every leader uses these times, whatever its own are."""

    node: str
    vault: str
    lease_s: float
    fences: bool = True
    proceed_s: float = 0.0

    def covers(self, renew: Renew) -> bool:
        """Whether a leader that counts by this record waits for the requested lease in full."""
        return renew.lease_s <= self.lease_s and renew.proceed_s <= self.proceed_s


class Holding:
    """The leader's state for one registered holder, in one term."""

    __slots__ = (
        "asked", "fenced_at", "granted_at", "heard_at", "incarnation", "leases", "leaving", "proceed_s", "registration",
        "reported_state", "staged",
    )  # fmt: skip

    def __init__(self, registration: Registration, timing: FenceTiming) -> None:
        self.registration = registration
        self.proceed_s = max(timing.proceed_s(registration.lease_s), registration.proceed_s)
        self.leases: deque[tuple[int, float]] = deque()
        """(after, granted at), both increasing. Empty: no lease of this or an earlier leader can be alive."""
        self.staged = 0
        self.incarnation: int | None = None
        self.asked = NEVER
        """The latest t0 granted to this incarnation in this term."""
        self.leaving = False
        self.granted_at: float | None = None
        self.heard_at: float | None = None
        self.reported_state: HolderPhase | None = None
        """The state in its last message. For display only: no verdict depends on it."""
        self.fenced_at: float | None = None

    def term_began(self, now: float) -> None:
        """All earlier grants were made before `now`."""
        self.leases.append((0, now))

    def record_heartbeat(self, incarnation: int, now: float) -> bool:
        """Call for each message. False: it is from an earlier process, whose page is fenced by now."""
        if self.incarnation is not None and incarnation < self.incarnation:
            return False
        if incarnation != self.incarnation:
            self.incarnation, self.asked = incarnation, NEVER
        self.heard_at = now
        return True

    def grant(self, t0: float, now: float, after: int) -> None:
        """Record a grant that is about to be sent and requires everything up to `after`."""
        self.asked = max(self.asked, t0)
        self.granted_at, self.fenced_at = now, None
        self._forget(now)
        if self.leases and self.leases[-1][0] == after:
            self.leases.pop()
        self.leases.append((after, now))

    def acknowledge(self, upto: int) -> None:
        self.staged = max(self.staged, upto)

    def promise(self, fenced: FencedMessage, now: float) -> bool:
        """The holder serves nothing and rejects every grant requested up to `fenced.at`. Whether that voids all leases.

        The promise follows a message of this leader, and so every grant of an earlier one. If this leader has granted
        no request later than `fenced.at`, no lease is left. The caller has checked that `fenced.term` is its own term.
        """
        if not self.registration.fences or fenced.at < self.asked:
            return False
        self.leases.clear()
        self.fenced_at = now
        self.reported_state = HolderPhase.FENCED if self.reported_state is HolderPhase.ACTIVE else self.reported_state
        return True

    def safe_up_to(self, now: float, latest: int) -> int:
        """The greatest revision up to which the holder can serve nothing that is replaced. `latest`: the latest strict
        revision."""
        if not self.registration.fences:
            return self.staged
        self._forget(now)
        return max(self.staged, self.leases[0][0] if self.leases else latest)

    def lease_before(self, revision: int) -> float | None:
        """Time of the last grant that lets it serve without this revision; None if there is none."""
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
        """When all its leases have expired, if there are no further grants; None: never, it has to acknowledge."""
        if not self.registration.fences:
            return None
        self._forget(now)
        return self.leases[-1][1] + self.proceed_s if self.leases else now

    def _forget(self, now: float) -> None:
        """Drop leases that have expired, or that only matter for acknowledged revisions."""
        leases = self.leases
        while leases and now >= leases[0][1] + self.proceed_s:
            leases.popleft()
        while len(leases) > 1 and leases[1][0] <= self.staged:
            leases.popleft()
