"""The registered holders, for which releases wait.

A holder is registered in a replicated record before its first grant, so that a new leader knows all holders. A record
is removed or replaced only once no lease of that holder can be alive. Another data folder under the same name is a
different holder: its acknowledgements do not cover readers of the first folder, which may serve until that lease
expires. If a record is removed too early all the same, this leader still waits for the holder until it is safe.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from palisade.fencing.grants import Holding, Registration
from palisade.fencing.messages import Hello, HolderId
from palisade.fencing.timing import FenceTiming


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
