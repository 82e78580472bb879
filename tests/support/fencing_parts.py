"""The parts of `fencing_world.py`: its size, its vaults, processes and leaders, and their shared state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palisade.fencing.holder_state import Holder
from palisade.fencing.lease import NEVER
from palisade.fencing.messages import Hello, HolderId, HolderPhase
from palisade.fencing.registry import Registry
from palisade.fencing.release import Registration, Releases
from palisade.fencing.session import HolderSession
from palisade.fencing.stage_chain import Mark
from palisade.fencing.timing import FenceTiming

MESSAGES_MAX = 8
TIMING = FenceTiming(fence_s=2.0, drift=0.0, margin_s=0.0)


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
    crashes: bool = True
    powers: bool = True
    holder: type[Holder] = Holder
    releases: type[Releases] = Releases
    session: type[HolderSession] = HolderSession
    registry: type[Registry] = Registry
    asks_quorum: bool = True
    """False: a leader grants without checking its quorum lease."""
    fences_at_start: bool = True
    """False: a process that starts leaves the fence page as it is."""
    gated: bool = True
    """False: the vault applies every committed change."""
    checks: bool = True
    """False: a reader checks the fence page only when it is opened."""
    calm_at_start: bool = True
    """The world begins with all holders serving."""
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
    messages_max: int = MESSAGES_MAX
    hellos: int = 1 << 30
    """How many connections are made, calm periods aside; each has a number of its own."""
    starts: int = 1 << 30
    """How many processes are started, the initial ones included."""
    checks_vault: bool = True
    """False: another vault takes over a name without waiting for the readers of the first."""


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

    def clean(self) -> None:
        gone = min(self.lv, self.released)
        if self.marks and self.marks[0] <= gone:
            self.marks = tuple(mark for mark in self.marks if mark > gone)


class Process:
    """One holder: alive or not. Its clock is that of its machine."""

    __slots__ = ("holder", "incarnation", "leader", "node", "offset", "queue", "rate", "vault")

    def __init__(self, node: str, vault: Vault, incarnation: int, rate: float) -> None:
        self.node = node
        self.vault = vault
        self.incarnation = incarnation
        self.rate = rate
        self.offset = 1000.0 * (int(vault.name[-1]) + 1) + 100.0 * int(node[-1])
        self.holder: Holder | None = None
        self.queue: list[Mark] = []
        self.leader = 0

    @property
    def id(self) -> HolderId:
        return HolderId(self.node, self.vault.name, self.incarnation)


class Leader:
    """Of one term. It may not have learned that there is another one."""

    __slots__ = ("quorum_until", "rate", "releases", "sessions", "term", "wanted")

    def __init__(self, term: int, releases: Releases, rate: float) -> None:
        self.term = term
        self.releases = releases
        self.rate = rate
        self.quorum_until = 0.0
        self.sessions: dict[int, HolderSession] = {}
        self.wanted: dict[int, Hello] = {}


Message = tuple[str, int, int, Any]
"""Recipient: 'L'eader or 'H'older; the node of the leaders; the process; the message."""


@dataclass
class Parts:
    """The current state."""

    scope: Scope
    now: float = 0.0
    lm: int = 0
    shown: list[int] = field(default_factory=list)
    """The newest value of each key that any reader got."""
    reads: int = 0
    incarnations: int = 0
    ticks: int = 0
    hellos: int = 0
    registered: dict[str, Registration] = field(default_factory=dict)
    leaders: list[Leader] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    """Messages that stay in flight for a long time."""

    # Time

    def leader_clock(self, leader: Leader) -> float:
        return 7.0 + leader.rate * self.now

    @staticmethod
    def clock(process: Process, now: float) -> float:
        return process.offset + process.rate * now

    def latest(self, key: int, upto: int) -> int:
        """The value of the key as of that revision."""
        keys, eventual = self.scope.keys, self.scope.eventual
        while upto > 0 and (upto % keys != key or upto in eventual):
            upto -= 1
        return upto

    def value(self, vault: Vault, key: int) -> int | None:
        """The value that a reader finds in this vault; None: the key is pending."""
        keys = self.scope.keys
        for mark in reversed(vault.marks):
            if mark % keys == key:
                return mark if mark <= vault.released else None
        return self.latest(key, vault.lv)

    def show(self, key: int, value: int, before: int, where: str) -> None:
        """A reader got the value; `before` had been returned when the read began."""
        self.reads += 1
        if value < before:
            raise Stale(f"{where} shows {value} for key {key}, and {before} had been shown")
        self.shown[key] = max(self.shown[key], value)

    def _alive(self, want: Callable[[Holder, Process], bool]) -> list[int]:
        return [i for i, p in enumerate(self.processes) if p.holder is not None and want(p.holder, p)]

    def _call(self, number: int, method: str, *arguments: Any) -> Any:
        """A call of the holder, and its caller's duty afterwards: publish."""
        process = self.processes[number]
        holder = process.holder
        assert holder is not None
        answer = getattr(holder, method)(*arguments)
        vault = process.vault
        active = holder.state is HolderPhase.ACTIVE
        if active and not vault.active:
            vault.activation += 1
        vault.active, vault.deadline = active, holder.deadline
        vault.released = max(vault.released, holder.released)
        vault.term = holder.term
        return answer

    def _send_if_any(self, number: int, what: Any) -> None:
        if what is not None:
            process = self.processes[number]
            self._send(("L", process.leader, number, (process.id, what)))

    def _send(self, message: Message) -> None:
        """The oldest message is lost if too many are in flight."""
        if message not in self.messages:
            if len(self.messages) >= self.scope.messages_max:
                del self.messages[0]
            self.messages.append(message)

    def _clock_of(self, number: int) -> float:
        return self.clock(self.processes[number], self.now)
