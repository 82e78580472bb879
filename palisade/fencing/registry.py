"""The registered holders, for which releases wait: their registrations, possibly live leases and acknowledgements.

A holder is registered in a replicated record before its first grant, so that a new leader knows all holders. A record
is removed or replaced only once no lease of that holder can be alive. Another data folder under the same name is a
different holder: its acknowledgements do not cover readers of the first folder, which may serve until that lease
expires. If a record is removed too early, this leader still waits for the holder until it is safe.

A grant at time t that requires everything up to `after` lets the holder serve until t + T_proceed at the latest, and
only with everything up to `after` staged. Thus the leases that matter for revision r are those granted before r was
committed, that is, with `after` < r, and of these the last. One pair (after, t) per distinct `after` is enough: a
commit costs nothing here, whatever the number of holders, and two revisions that wait for the same lease end together.

The time of a grant is recorded before the grant is sent. A new leader knows no earlier grants. It assumes that each
holder was granted a lease that requires nothing when its term began.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from palisade.fencing.lease import NEVER
from palisade.fencing.messages import FencedMessage, Hello, HolderId, HolderPhase, Renew
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


class HolderStanding(enum.Enum):
    """Registration status of a holder that sends Hello."""

    REGISTERED = "registered"
    NEW = "not registered: replicate its registration, then register it"
    OTHER = "registered with another vault, other times or capability: wait until that is safe, then replace it"
    OLD_INCARNATION = "superseded by a later process of this node"
    NOT_LEADING = "this node does not lead"


@dataclass(frozen=True, slots=True)
class MayLeave:
    """Whether a registration may be removed now. `until`: when it may be removed by time alone; None if not `now`: only
    after a message from the holder."""

    now: bool
    until: float | None


class Registry:
    """The holders of one term."""

    __slots__ = ("_by_node", "_gone", "_order", "_proven", "_timing")

    def __init__(self, timing: FenceTiming) -> None:
        self._timing = timing
        self._by_node: dict[str, Holding] = {}
        self._gone: list[Holding] = []
        self._order: list[Holding] | None = None
        """All holders that releases wait for; None: rebuild it."""
        self._proven = (0, 0)
        """A revision, and how many holders in that order are known to be safe for it."""

    def __iter__(self) -> Iterator[Holding]:
        """All holders that releases wait for: the registered ones, and those removed too early."""
        yield from self._by_node.values()
        yield from self._gone

    def __len__(self) -> int:
        return len(self._by_node)

    def begin(self, registered: Iterable[Registration], now: float) -> None:
        self.clear()
        for registration in registered:
            held = self._by_node[registration.node] = Holding(registration, self._timing)
            held.term_began(now)

    def clear(self) -> None:
        self._by_node.clear()
        self._gone.clear()
        self._order = None

    def find(self, holder: HolderId) -> Holding | None:
        """By name and vault."""
        held = self._by_node.get(holder.node)
        return held if held is not None and held.registration.vault == holder.vault else None

    def of(self, node: str) -> Holding | None:
        return self._by_node.get(node)

    def standing(self, hello: Hello) -> HolderStanding:
        held = self._by_node.get(hello.holder.node)
        if held is None:
            return HolderStanding.NEW
        return HolderStanding.REGISTERED if held.registration == registration_of(hello) else HolderStanding.OTHER

    def leave(self, node: str, now: float) -> MayLeave:
        """Prepare to remove or replace the holder: it gets no more grants. Call again until the removal is allowed."""
        held = self._by_node.get(node)
        if held is None:
            return MayLeave(True, None)
        held.leaving = True
        safe_at = held.safe_at(now)
        return MayLeave(safe_at is not None and safe_at <= now, safe_at)

    def stay(self, node: str) -> None:
        """Cancel `leave`."""
        held = self._by_node.get(node)
        if held is not None:
            held.leaving = False

    def register(self, registration: Registration, now: float) -> None:
        """Call when the record is applied. Registering it again only cancels `leave`."""
        held = self._by_node.get(registration.node)
        if held is not None and held.registration == registration:
            held.leaving = False
            return
        self.unregister(registration.node, now)
        self._by_node[registration.node] = Holding(registration, self._timing)
        self._order = None

    def unregister(self, node: str, now: float) -> None:
        """Call when the record is removed. For a holder without leases, the removal itself confirms that it is safe."""
        held = self._by_node.pop(node, None)
        self._order = None
        if held is None:
            return
        held.leaving = True
        safe_at = held.safe_at(now)
        if safe_at is not None and safe_at > now:
            self._gone.append(held)

    # Safety

    def safe_up_to(self, now: float, latest: int) -> int:
        """The greatest revision up to which no holder can serve a replaced value."""
        self._gone = [held for held in self._gone if (held.safe_at(now) or now) > now]
        return min((held.safe_up_to(now, latest) for held in self), default=latest)

    def blocks(self, revision: int, now: float, latest: int) -> bool:
        """Whether this revision waits for a holder. Safe for a revision means safe from then on, so each holder is
        checked until it is safe, and then not again."""
        if self._order is None or self._proven[0] != revision:
            self._order = list(self) if self._order is None else self._order
            self._proven = (revision, 0)
        order, safe = self._order, self._proven[1]
        while safe < len(order) and order[safe].safe_up_to(now, latest) >= revision:
            safe += 1
        self._proven = (revision, safe)
        return safe < len(order)

    def safe_at(self, revision: int, now: float, latest: int) -> float | None:
        """When this revision stops waiting, by time alone; None: never."""
        last = now
        for held in self:
            if held.safe_up_to(now, latest) < revision:
                granted_at = held.lease_before(revision)
                if not held.registration.fences or granted_at is None:
                    return None
                last = max(last, granted_at + held.proceed_s)
        return last

    def least_staged(self) -> int:
        """The greatest revision that all holders have acknowledged."""
        return min((held.staged for held in self._by_node.values()), default=0)


def registration_of(hello: Hello) -> Registration:
    """The record that this holder needs."""
    return Registration(hello.holder.node, hello.holder.vault, hello.lease_s, hello.fences, hello.proceed_s)
