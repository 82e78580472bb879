"""The parts of every small world of the fencing protocol: a machine with its clock, a leader, a holder, its vault.

A part has no schedule. `fencing_world.py` moves them in any order, `fencing_pair.py` by hand, `retention_world.py` with
a vault of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palisade.fencing.holder_state import Holder
from palisade.fencing.lease import NEVER
from palisade.fencing.messages import (
    Behind,
    FencedMessage,
    GrantMessage,
    Hello,
    HolderId,
    HolderPhase,
    JoinMessage,
    Release,
    Renew,
    Row,
    StagedMessage,
    StageMessage,
    WelcomeMessage,
)
from palisade.fencing.registry import HolderStanding, Registry
from palisade.fencing.release import Releases
from palisade.fencing.session import HolderSession
from palisade.fencing.stage_chain import Mark
from palisade.fencing.timing import FenceTiming

TIMING = FenceTiming(fence_s=2.0, drift=0.0, margin_s=0.0)


Message = tuple[str, int, int, Any]
"""Recipient: 'L'eader or 'H'older; the node of the leaders; the process; the message."""
RECEIVED = {
    WelcomeMessage: "on_welcome", StageMessage: "on_stage", GrantMessage: "on_grant", Release: "on_release",
    Behind: "on_behind",
}  # fmt: skip
"""The call of a holder for each message of a leader."""
SENT = (StagedMessage, FencedMessage)


class Vault:
    """A node's copy of the register, with its fence page and a reader in another process."""

    __slots__ = ("activation", "active", "deadline", "lv", "marks", "name", "opened", "read", "released", "term")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lv = 0
        self.marks: tuple[int, ...] = ()
        self.active = False
        self.deadline = NEVER
        self.released = 0
        self.term = 0
        self.activation = 0
        self.read: tuple[int, int, int, int | None] | None = None
        """A read in progress: its key, the values returned before it began, the activation, its findings so far."""
        self.opened = False

    def publish(self, holder: Holder) -> None:
        """On the fence page."""
        active = holder.state is HolderPhase.ACTIVE
        if active and not self.active:
            self.activation += 1
        self.active, self.deadline = active, holder.deadline
        released = holder.released
        if released > self.released:
            self.released = released
        self.term = holder.term

    def mark(self, mark: Mark) -> None:
        """The rows become pending, in one commit."""
        new = {row[0] for row in mark.rows}
        self.marks = tuple(sorted(new if mark.anew else new | set(self.marks)))

    def apply(self) -> None:
        """The next revision."""
        self.lv += 1
        gone = min(self.lv, self.released)
        if self.marks and self.marks[0] <= gone:
            self.marks = tuple(mark for mark in self.marks if mark > gone)

    def open(self) -> None:
        """By a process that starts: the page becomes FENCED first."""
        self.active = False

    def lose_power(self) -> None:
        """Marks are not synced, commits may be lost, and the readers are gone."""
        self.marks, self.lv = (), self.lv // 2
        self.active, self.deadline, self.released, self.term, self.read = False, NEVER, 0, 0, None


class Machine:
    """Its clock runs at its own rate."""

    __slots__ = ("offset", "rate")

    def __init__(self, offset: float, rate: float) -> None:
        self.offset = offset
        self.rate = rate

    def clock(self, now: float) -> float:
        return self.offset + self.rate * now


class Process(Machine):
    """One holder: alive or not."""

    __slots__ = ("holder", "incarnation", "leader", "node", "queue", "vault")

    def __init__(self, node: str, vault: Vault, offset: float = 0.0, rate: float = 1.0) -> None:
        super().__init__(offset, rate)
        self.node = node
        self.vault = vault
        self.incarnation = 0
        self.holder: Holder | None = None
        self.queue: list[Mark] = []
        """Handed out by the holder, and not committed by the vault yet."""
        self.leader = 0

    @property
    def id(self) -> HolderId:
        return HolderId(self.node, self.vault.name, self.incarnation)

    @property
    def running(self) -> Holder:
        assert self.holder is not None
        return self.holder

    def start(self, incarnation: int, timing: FenceTiming, at: float, kind: type[Holder] = Holder) -> None:
        self.incarnation = incarnation
        self.holder = kind(self.id, timing, at, term=self.vault.term)

    def call(self, method: str, *arguments: Any) -> Any:
        """A call of the holder, and its caller's duty before the answer is sent: publish."""
        holder = self.holder
        assert holder is not None
        answer = getattr(holder, method)(*arguments)
        self.vault.publish(holder)
        return answer

    def receive(self, what: Any, at: float, *, marks_first: bool = True) -> StagedMessage | FencedMessage | None:
        """The answer to a message of a leader. Marks are queued, and acknowledged by `mark`."""
        answer = self.call(RECEIVED[type(what)], what, at)
        if isinstance(answer, Mark):
            self.queue.append(answer)
            answer = None if marks_first else self.call("marked", answer, at)
        return answer if isinstance(answer, SENT) else None

    def mark(self, at: float) -> StagedMessage | None:
        """The vault commits the oldest marks."""
        mark = self.queue.pop(0)
        self.vault.mark(mark)
        staged: StagedMessage | None = self.call("marked", mark, at)
        return staged


class Leader(Machine):
    """The leader of one term. It may not have learned that there is another one. `sessions`, `wanted`: by a key of the
    holder's process."""

    __slots__ = ("quorum_until", "releases", "sessions", "term", "wanted")

    def __init__(self, term: int, releases: Releases, offset: float = 0.0, rate: float = 1.0) -> None:
        super().__init__(offset, rate)
        self.term = term
        self.releases = releases
        self.quorum_until = 0.0
        self.sessions: dict[Any, HolderSession] = {}
        self.wanted: dict[Any, Hello] = {}
        """Holders whose registration has to be replicated."""

    def receive(
        self, process: Any, holder: HolderId, what: Any, at: float, *, quorum_lease: bool
    ) -> WelcomeMessage | GrantMessage | None:
        """The answer to a message of a holder."""
        releases = self.releases
        match what:
            case Hello():
                standing = releases.hello(what, at)
                if standing in (HolderStanding.NEW, HolderStanding.OTHER):
                    self.wanted[process] = what
                if standing in (HolderStanding.NEW, HolderStanding.OTHER, HolderStanding.REGISTERED):
                    self.sessions[process] = HolderSession(what)
                    return WelcomeMessage(self.term, releases.lm, releases.rr)
            case JoinMessage():
                if process in self.sessions:
                    self.sessions[process].on_join(what)
            case Renew():
                grant = releases.renew(holder, what, at, quorum_lease=quorum_lease)
                return grant if isinstance(grant, GrantMessage) else None
            case StagedMessage():
                releases.staged(holder, what.upto, at)
            case FencedMessage():
                releases.fenced(holder, what, at)
        return None

    def next_stage(self, process: Any, eventual: Sequence[int] = ()) -> StageMessage | Behind | None:
        """Of all strict changes that it knows to be committed."""
        lm, rr = self.releases.lm, self.releases.rr
        return self.sessions[process].next_stage(
            self.term, lm, rr, lambda after: rows(r for r in range(after + 1, lm + 1) if r not in eventual)
        )


def rows(revisions: Iterable[int]) -> tuple[Row, ...]:
    return tuple((revision, b"k", b"") for revision in revisions)


class Stale(AssertionError):
    """A reader got a value older than one that was returned before."""


@dataclass(frozen=True)
class Scope:
    """The size of the world, and the rules that are broken on purpose."""

    holders: int = 2
    revisions: int = 3
    terms: int = 2
    ticks: int = 14
    tick_s: float = 0.5
    keys: int = 2
    """Revision r writes key r % keys."""
    leader_nodes: int = 2
    """Terms are led by these nodes in turn."""
    processes: int = 4
    quorum_s: float = 1.0
    timing: FenceTiming = TIMING
    timings: tuple[FenceTiming, ...] = ()
    """Of the holders, if they differ from the leaders': each process that starts has the next one."""
    rates: tuple[float, ...] = (1.0,)
    """Of the holders' clocks."""
    leader_rates: tuple[float, ...] = (1.0,)
    eventual: tuple[int, ...] = ()
    """Revisions without a strict change."""
    powers: bool = True
    vault: Callable[[str], Vault] = Vault
    """By its name."""
    holder: type[Holder] = Holder
    releases: type[Releases] = Releases
    registry: type[Registry] = Registry
    asks_quorum: bool = True
    """False: a leader grants without checking its quorum lease."""
    fences_at_start: bool = True
    """False: a process that starts leaves the fence page as it is."""
    gated: bool = True
    """False: the vault applies every committed change."""
    checks: bool = True
    """False: a reader checks the fence page only when it is opened."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Moves that a walk makes more often."""
    moves: Mapping[str, float] | None = None
    """Only these moves, this often."""
    prelude: tuple[str, ...] = ()
    """The first moves of each walk."""
    marks_first: bool = True
    """False: a stage is acknowledged before the marks are committed."""
    answers_at_rr: bool = False
    """True: a leader that knows RR returns the value at RR, as in `model/lease_model.py`; else only the latest one, and
    only once that is released."""
    messages_max: int = 8
    hellos: int = 1 << 30
    """How many connections are made, calm periods aside; each has a number of its own."""
    starts: int = 1 << 30
    """How many processes are started, the initial ones included."""
    checks_vault: bool = True
    """False: another vault takes over a name without waiting for the readers of the first."""
