"""Who is registered as a holder, and for whom releases wait.

A holder is registered, in a replicated record, before its first grant, so that a new leader knows for whom to wait. A
record is taken away or replaced only once no lease of that holder can be alive. Another data folder under the same
name is another holder: what it stages says nothing about readers of the other one, who may be there until its lease
runs out. Should a record go earlier all the same, the holder is waited for until it is safe, as long as this leader
leads.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from palisade.fencing.grants import Holding, Registration
from palisade.fencing.messages import Hello, HolderId
from palisade.fencing.timing import Timing


class Standing(enum.Enum):
    """Where a holder that says Hello stands."""

    REGISTERED = "registered as it is"
    NEW = "not registered: replicate its registration, then register it"
    OTHER = "registered with another vault, other times or capability: that has to be safe, then replaced"
    OLD_INCARNATION = "another process of this node has come since"
    NOT_LEADING = "this node does not lead"


@dataclass(frozen=True, slots=True)
class MayLeave:
    """Whether a registration may be taken away now; `until`: when by time alone; None with not `now`: only when the
    holder says so itself."""

    now: bool
    until: float | None


class Registry:
    """The holders of one term."""

    __slots__ = ("_by_node", "_gone", "_order", "_proven", "_timing")

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._by_node: dict[str, Holding] = {}
        self._gone: list[Holding] = []
        self._order: list[Holding] | None = None
        """Of all that releases wait for; None: to be made anew."""
        self._proven = (0, 0)
        """A revision, and how many in that order are known to be safe for it."""

    def __iter__(self) -> Iterator[Holding]:
        """All that releases wait for: the registered, and those that left too early."""
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

    def standing(self, hello: Hello) -> Standing:
        held = self._by_node.get(hello.holder.node)
        if held is None:
            return Standing.NEW
        return Standing.REGISTERED if held.registration == registration_of(hello) else Standing.OTHER

    def leave(self, node: str, now: float) -> MayLeave:
        """It is to be taken away or replaced: from now on it is granted nothing. Ask again until it may."""
        held = self._by_node.get(node)
        if held is None:
            return MayLeave(True, None)
        held.leaving = True
        safe_at = held.safe_at(now)
        return MayLeave(safe_at is not None and safe_at <= now, safe_at)

    def stay(self, node: str) -> None:
        """It is not to be taken away after all."""
        held = self._by_node.get(node)
        if held is not None:
            held.leaving = False

    def register(self, registration: Registration, now: float) -> None:
        """The record has been applied. Registering what is registered changes nothing but that it stays."""
        held = self._by_node.get(registration.node)
        if held is not None and held.registration == registration:
            held.leaving = False
            return
        self.unregister(registration.node, now)
        self._by_node[registration.node] = Holding(registration, self._timing)
        self._order = None

    def unregister(self, node: str, now: float) -> None:
        """The record has been taken away. Of one that does not know leases that is the word of whoever took it out."""
        held = self._by_node.pop(node, None)
        self._order = None
        if held is None:
            return
        held.leaving = True
        safe_at = held.safe_at(now)
        if safe_at is not None and safe_at > now:
            self._gone.append(held)

    # What is safe

    def safe_up_to(self, now: float, latest: int) -> int:
        """Up to where no holder can serve anything that was replaced."""
        self._gone = [held for held in self._gone if (held.safe_at(now) or now) > now]
        return min((held.safe_up_to(now, latest) for held in self), default=latest)

    def blocks(self, revision: int, now: float, latest: int) -> bool:
        """Whether this revision has to wait for somebody. Who is safe for a revision stays safe for it: each is asked
        once, whatever comes meanwhile, but for the one that is waited for."""
        if self._order is None or self._proven[0] != revision:
            self._order = list(self) if self._order is None else self._order
            self._proven = (revision, 0)
        order, safe = self._order, self._proven[1]
        while safe < len(order) and order[safe].safe_up_to(now, latest) >= revision:
            safe += 1
        self._proven = (revision, safe)
        return safe < len(order)

    def safe_at(self, revision: int, now: float, latest: int) -> float | None:
        """When this revision waits for nobody any more, by time alone; None: never."""
        last = now
        for held in self:
            if held.safe_up_to(now, latest) < revision:
                granted_at = held.lease_before(revision)
                if not held.registration.fences or granted_at is None:
                    return None
                last = max(last, granted_at + held.proceed_s)
        return last

    def least_staged(self) -> int:
        """Up to where all have acknowledged."""
        return min((held.staged for held in self._by_node.values()), default=0)


def registration_of(hello: Hello) -> Registration:
    """The record that this holder needs."""
    return Registration(hello.holder.node, hello.holder.vault, hello.lease_s, hello.fences, hello.proceed_s)
