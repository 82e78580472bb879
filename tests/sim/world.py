"""A whole cluster in one thread: machines with real nodes on simulated time, network and disks, all from one seed.

`Host` is a machine and the node on it; `Checker`s observe. The world itself draws from one random source; nothing in it
depends on the order of a set or on an address in memory, so the same seed creates the same trace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from random import Random
from typing import Any, TypeVar

from palisade.metastore.lineage import FIRST_GENERATION
from palisade.metastore.results import RevisionEvents
from palisade.metastore.state_machine import MetaStore
from palisade.node.config import FenceTimes, RetentionConfig, TimingConfig
from palisade.vault.regions import Policy
from palisade.vault.vault import Vault
from tests.sim.backups import Base
from tests.sim.committing import Committing
from tests.sim.history import History
from tests.sim.network import WINDOW_BYTES, Network
from tests.sim.node import Host
from tests.sim.seen import Answer, Call
from tests.support.machine import followed_leader, leaders_of
from tests.support.onlooker import Onlooker, Violation
from tests.support.raft_network import QUEUED_BYTES_MAX, SMALL_PEER_BYTES_MAX, Weather
from tests.support.simulation import Process, Simulation

T = TypeVar("T")
K = TypeVar("K")
LINES_MAX = 400
DATA_NODES = 3
STAYS_UP = "stays up"
SMALL_WINDOW_BYTES = 128
"""In relation to responses of a hundred bytes to 2 KiB."""
FENCES = (FenceTimes(), FenceTimes(), FenceTimes(lease_s=1.0, renewals=4))


@dataclass(frozen=True, slots=True)
class Settings:
    """`drift`: the largest relative error of each clock; the product's bound is 0.01.

    `of` draws what may differ between clusters: sizes, retention, times.
    """

    members: int = 3
    followers: int = 1
    drift: float = 0.009
    catch_up_difference: int = 100
    timing: TimingConfig = field(default_factory=lambda: TimingConfig(heartbeat_ms=200))
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    fences: FenceTimes = field(default_factory=FenceTimes)
    fences_differ: bool = False
    """Each start of a node has its own times."""
    token: str | None = None
    policy: Policy = Policy.FAIL_CLOSED
    """Of the strict region that clients read."""
    http: bool = False
    """Nodes have their HTTP servers, and there is a client of these."""
    part: float = 1.0
    """The share of the scenario's time with faults."""
    window_bytes: int = WINDOW_BYTES
    """Of each stream; if it is small its writers are paused, and clients read slowly sometimes."""
    peer_bytes_max: int = QUEUED_BYTES_MAX
    """Bytes in flight from one member to another, before the connection is closed."""
    rule_pause_s: float = 6.0
    rule_s: float = 4.0
    """The longest times without the TTL rule, and with it: a copy is in the trash for a second."""

    @staticmethod
    def of(seed: int) -> Settings:
        """Small logs and short histories are common, so that snapshots and differences are. Most runs are short: a new
        cluster meets faults that an old one would not, and early faults hit a cluster that is still busy starting."""
        chance = Random(f"settings {seed}")
        return Settings(
            members=5 if chance.random() < 0.08 else 3,
            followers=chance.choice((0, 1, 1, 1, 2)),
            catch_up_difference=chance.choice((100, 3, 3)),
            retention=RetentionConfig(
                revisions=chance.choice((100_000, 100_000, 60, 15)), log_entries=chance.choice((10_000, 200, 20, 20))
            ),
            fences=chance.choice(FENCES),
            fences_differ=chance.random() < 0.2,
            token=chance.choice((None, None, "let me in, I know you")),
            policy=chance.choice((Policy.FAIL_CLOSED, Policy.FAIL_CLOSED, Policy.REFETCH, Policy.DENY)),
            http=chance.random() < 0.25,
            part=chance.choice((1.0, 0.5, 0.5, 0.25)),
            window_bytes=chance.choice((WINDOW_BYTES, WINDOW_BYTES, SMALL_WINDOW_BYTES)),
            peer_bytes_max=chance.choice((QUEUED_BYTES_MAX,) * 2 + (SMALL_PEER_BYTES_MAX,)),
        )


class TimeIsUp(Exception):
    """The run was to end at this simulated time."""


class Checker(Onlooker):
    """One property of the whole cluster."""

    world: World


class World:
    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.seed, self.settings = seed, settings or Settings.of(seed)
        self.simulation = Simulation(seed)
        self.chance = self.simulation.random
        self.network = Network(self.simulation)
        self.network.weather = Weather()
        self.network.window_bytes = self.settings.window_bytes
        self.network.queued_bytes_max = self.settings.peer_bytes_max
        self.history = History(lambda: self.simulation.now)
        self.violations: list[Violation] = []
        self.goes_on = False
        """After a violation, so that other checkers can report it, too; each reports once."""
        self.wanted: frozenset[str] = frozenset()
        """With `goes_on`: the run ends once all of these checkers have reported. Empty: it continues to its end."""
        self.until_s = inf
        """At that simulated time the run ends, without having been judged."""
        self._checkers: list[Onlooker] = []
        self._turned_hooks: list[Callable[[Host], None]] = []
        self.owners: dict[Process, Host] = {}
        self.coverage: dict[str, int] = {}
        self.lines: list[str] = []
        self._digest = blake2b(digest_size=16)
        self.strict_from = 0
        """The revision from which on `s/` is strict; 0: not yet."""
        self.revision = 1
        """The latest that any node has applied."""
        self.generation = FIRST_GENERATION
        self.epoch = 0
        """Number of disasters: each time another history begins, and is recorded separately."""
        self.survivor = ""
        """The survivor that continued alone after the latest disaster, if any."""
        self.kept = 0
        """Up to this revision this history equals the previous one."""
        self.operations = 0
        """Of the earlier histories."""
        self._has_released = False
        """In this history."""
        self._closed = False
        self.is_down = False
        """All members are lost, and none of the new cluster has started yet."""
        self.takes_backups = self.has_segments = self.has_expiry = False
        self.segment_files: dict[str, bytes] = {}
        """The content of published segments, by digest."""
        self.has_rare = False
        """Requests of an administrator, and followers with data beside their vaults."""
        self.restored: Callable[[Base], None] = lambda base: None
        """Called when no old member is left: the recorded history is complete."""
        self.begins_again: Callable[[], None] = lambda: None
        """Called when the nodes of the new cluster start."""
        self.on_ended: Callable[[Host], None] = lambda host: None
        self.callers: list[str] = []
        """Clients, by their names in the network."""
        self.excused: frozenset[str] = frozenset()
        """Checkers whose violations are only counted: their property is not promised in this run."""
        self.tolerated: Callable[[Host, BaseException], bool] = lambda host, error: False
        """Whether a node may stop itself for that."""
        self.hosts: dict[str, Host] = {}
        count = self.settings.members + self.settings.followers
        for number in range(1, count + 1):
            follows = number > self.settings.members
            name = f"f{number - self.settings.members}" if follows else f"n{number}"
            self.hosts[name] = Host(self, name, number, follows=follows, rate=self.rate_of(self.chance.random()))
        self.founders = tuple(self.members)
        self.simulation.after_turn = self._turned

    @property
    def now(self) -> float:
        return self.simulation.now

    def rate_of(self, lot: float) -> float:
        """Of a clock with an error within the bound. `lot`: from 0, the slowest, to 1."""
        return 1.0 + self.settings.drift * (2 * lot - 1)

    def wall_offset_s(self) -> float:
        """Of the machine whose process has its turn."""
        turning = self.simulation.turning
        return 0.0 if turning is None else turning.wall_offset_s

    @property
    def checkers(self) -> list[Onlooker]:
        return self._checkers

    @checkers.setter
    def checkers(self, checkers: list[Onlooker]) -> None:
        self._checkers = checkers
        self._turned_hooks = [each.turned for each in checkers if type(each).turned is not Onlooker.turned]

    @property
    def data_nodes(self) -> tuple[str, ...]:
        """The nodes that store segments. The others, if there are any, have brokers alone."""
        names = sorted(self.hosts)
        if not self.has_segments:
            return ()
        return tuple(sorted(Random(f"data nodes {self.seed}").sample(names, min(DATA_NODES, len(names)))))

    def checker(self, kind: type[K]) -> K:
        """The one of that kind."""
        return next(each for each in self._checkers if isinstance(each, kind))

    @property
    def members(self) -> list[Host]:
        return [host for host in self.hosts.values() if not host.follows]

    def by_id(self, member: str) -> Host:
        return self.hosts[member]

    def start(self) -> None:
        for host in self.hosts.values():
            host.start()

    def close(self) -> None:
        self._closed = True
        self.simulation.close()

    # The nodes' surroundings

    def fences_at(self, host: Host) -> FenceTimes:
        if not self.settings.fences_differ:
            return self.settings.fences
        return Random(f"fences {self.seed} {host.id} {host.starts}").choice(FENCES)

    def http_of_members(self, but: str) -> list[str]:
        """The members that a node asks to join: first the survivor, as its administrator would configure."""
        first = sorted(self.members, key=lambda host: host.id != self.survivor)
        return [host.http for host in first if host.id != but]

    def swim_addresses(self, but: str) -> list[str]:
        return [f"{host.address}:7501" for host in self.members if host.id != but]

    async def ask(self, own: Process, sender: str, address: str, work: Callable[[Any], Awaitable[T]]) -> T:
        """Call the node at that HTTP address. Raises ConnectionError, and the errors of the call."""
        host = self.hosts[self.network.hosts[address.partition(":")[0]]]

        async def run() -> T:
            if host.node is None:
                raise ConnectionRefusedError(f"{host.id} does not listen yet")
            return await work(host.node)

        return await self.network.ask(own, sender, host.id, host.process, run)

    # Notifications of nodes

    def wired(self, host: Host, node: Any) -> None:
        if not host.follows:
            self._watch_applied(host, node)
        for checker in self.checkers:
            checker.wired(host)

    def _watch_applied(self, host: Host, node: Any) -> None:
        committing = self._committing(node.store)
        machine = node.group._machine
        apply = machine.apply

        def observed(index: int, term: int, stamp: Any, commands: Sequence[bytes]) -> Any:
            results = apply(index, term, stamp, commands)
            committing.look()
            for checker in self.checkers:
                checker.applied(host, index, term, commands)
            return results

        machine.apply = observed

    def _committing(self, store: MetaStore) -> Committing:
        """Changes that the first node has applied are recorded in the history."""

        def committed(events: RevisionEvents) -> None:
            self.history.committed(events)
            for checker in self.checkers:
                checker.committed(events)
            self.revision = events.revision

        return Committing(store, lambda: self.revision, committed)

    def answered(self, host: Host, call: Call, since: int, answer: Answer) -> None:
        for checker in self.checkers:
            checker.answered(host, call, since, answer)

    def opened(self, host: Host, vault: Vault) -> None:
        self.note(host.id, f"vault is open at {vault.revision}")
        for checker in self.checkers:
            checker.opened(host, vault)

    def killed(self, host: Host) -> None:
        for checker in self.checkers:
            checker.killed(host)

    def has_ended(self, host: Host, process: Process) -> None:
        """Errors of a node that is closed with its world are ignored."""
        if self._closed:
            return
        error = host.ended
        self.note(host.id, f"has ended: {error!r}")
        if (self.goes_on or not self.violations) and (error is None or not self.tolerated(host, error)):
            why = "says nothing" if error is None else f"{error!r} {error.__cause__!r}"
            self.fail(STAYS_UP, f"{host.id} stopped itself: {why}")
        self.simulation.after(0.0, lambda: self._reap(host, process))

    def _reap(self, host: Host, process: Process) -> None:
        if host.process is process:
            host.kill()
            self.on_ended(host)

    def _turned(self, process: Process) -> None:
        host = self.owners.get(process)
        if host is not None and host.process is process and host.node is not None:
            state = host.state()
            if state != host.looked_at:
                host.looked_at = state
                for turned in self._turned_hooks:
                    turned(host)
        if self.violations and not self.goes_on:
            raise self.violations[0]
        if self.simulation.now > self.until_s:
            raise TimeIsUp

    def go_on_from(self, base: Base) -> None:
        """Another history, which begins with a backup, or with the data of a survivor."""
        self.epoch += 1
        self.operations += len(self.history.operations())
        self.generation, self.revision, self.kept = base.generation, base.revision, base.kept
        self.survivor = base.survivor.id if base.survivor is not None else ""
        self._has_released, self.is_down = False, True
        for host in self.hosts.values():
            host.looked_at = ()
        self.history = History(lambda: self.simulation.now)
        self.history.restored(base.past, base.revision, base.generation)

    def is_asked(self, vault: Vault | None) -> bool:
        """Whether its reads are recorded: a lease from before a restore may be alive until any change is released in
        the new history, and serves what was correct."""
        if not self.epoch or self._has_released or vault is None:
            return True
        cores = [host.node.fencing.lease_server.core for host in self.members if host.node is not None]
        self._has_released = any(core.leads and core.rr is not None for core in cores)
        lineage = vault.lineage
        return self._has_released or lineage is None or lineage.generation == self.generation

    # Recording

    def note(self, node: str, what: str) -> None:
        """One line of the trace."""
        line = f"{self.simulation.now:.6f} {node} {what}"
        self._digest.update(line.encode() + b"\n")
        self.lines.append(line)
        if len(self.lines) > 2 * LINES_MAX:
            del self.lines[:LINES_MAX]

    def digest(self) -> str:
        return self._digest.hexdigest()

    def count(self, what: str) -> None:
        self.coverage[what] = self.coverage.get(what, 0) + 1

    def fail(self, checker: str, text: str) -> None:
        """Also if the caller's exceptions are caught, as a node's turn does."""
        if checker in self.excused:
            self.count(f"beyond the bound: {checker}")
            return
        violation = Violation(checker, f"seed {self.seed}, at {self.simulation.now:.3f} s: {text}")
        if checker not in self.seen_by:
            self.violations.append(violation)
            if self.wanted and self.wanted <= set(self.seen_by):
                self.goes_on = False
        if not self.goes_on:
            raise violation

    @property
    def seen_by(self) -> tuple[str, ...]:
        """The checkers with violations, the first one first."""
        return tuple(violation.checker for violation in self.violations)

    # Observation from outside

    def leaders(self) -> list[Host]:
        return leaders_of(self.members)

    def leader(self) -> Host | None:
        """The leader that a majority follows."""
        return followed_leader(self.members)

    def all_serve(self) -> bool:
        """Every node is in the topology, and serves from its vault."""
        return all(
            host.healthy and host.is_active and host.part.holder is not None and host.part.holder.serves
            for host in self.hosts.values()
        )
