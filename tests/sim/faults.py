"""The faults of a run, as data: a plan is a tuple of faults, derived from the seed and nothing else. Pure.

A failing plan can be cut to the shortest one that still fails (`shrink.py`): removing faults changes nothing about the
others. `target` names a node, or a role ("leader", "all"), which is resolved when the fault begins.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from random import Random

CLIENTS = "clients"
"""Replaces the other node of a link: all clients of the target."""


class Kind(enum.Enum):
    """`amount` is the strength, from 0 to 1, if the fault has one; `for_s` its duration, if it has one.

    A fault is counted when it takes effect, not when it is tried: when a process has died, something was dropped, a
    disk refused (`Nemesis.struck`).
    """

    CRASH = "crash"
    """kill -9; restarted after `for_s`."""
    CRASH_IN_WRITE = "crash-in-write"
    """As a crash, in the middle of a turn: at one of the next writes of vault or fence page, before it or after it."""
    CRASH_IN_START = "crash-in-start"
    """A crash, and another one at one of the first writes of the start that follows, which is sometimes one without the
    old vault (`palisade vault reset`)."""
    CRASH_IN_TURN = "crash-in-turn"
    """As a crash, in the middle of a turn: between any two steps of tasks, at an await."""
    POWER = "power"
    """The machine loses its power; restarted after `for_s`."""
    PAUSE = "pause"
    """SIGSTOP."""
    PAUSE_ISOLATED = "pause-isolated"
    """SIGSTOP; from 50 ms after it until 2 s after its end no message of another node arrives: only the own clock shows
    how long the pause was, and that the responses which are read after it are old."""
    PAUSE_BEFORE_GRANT = "pause-before-grant"
    """SIGSTOP between the request of a lease and its grant, until it has expired."""
    PAUSE_IN_TURN = "pause-in-turn"
    """SIGSTOP between any two steps of tasks, at an await."""
    PAUSE_IN_READ = "pause-in-read"
    """SIGSTOP of the process that reads the vault beside a node, between any two steps of a read."""
    RESTART_IN_READ = "restart-in-read"
    """The same; meanwhile the node is killed and restarted."""
    SUSPEND = "suspend"
    """A machine: the node, and the reader beside it, in the middle of a read."""
    STOP = "stop"
    """An orderly stop; restarted after `for_s`."""
    STOP_IN_START = "stop-in-start"
    """Killed, restarted, and stopped in order during its start (`amount` selects the phase)."""
    STOP_SUSPECTED = "stop-suspected"
    """An orderly stop, after an isolation so long that the others suspect it, or consider it dead."""
    DROPPED_IN_RECOVERY = "dropped-in-recovery"
    """Restarted, and isolated while it recovers until the cluster has dropped it."""
    ISOLATE = "isolate"
    """From all other nodes, and for a high `amount` from clients too."""
    ISOLATE_LONG = "isolate-long"
    """The same for longer than any lease lasts: with clocks beyond the bound, one may be outlived."""
    ONE_WAY = "one-way"
    """Messages of the target to `other` are lost. For clients: their responses, or, for a high `amount`, their
    requests."""
    CUT = "cut"
    """Between the target and `other`, both ways."""
    FLAP = "flap"
    """A link that breaks and heals several times."""
    SPLIT = "split"
    """The target and `other` on one side, the rest on the other."""
    STORM = "storm"
    """Everywhere: loss, delay, repetition, reordering."""
    SLOW_LINK = "slow-link"
    SLOW_DISK = "slow-disk"
    FULL_DISK = "full-disk"
    FULL_SEGMENTS = "full-segments"
    """The volume with the segments of a data node is full, that of everything else is not. The operator makes room,
    and starts the node again."""
    DAMAGED_SEGMENTS = "damaged-segments"
    """A bit of a copy or of a realtime log changes on the medium; for a low `amount`, the node is killed then."""
    FAILING_DISK = "failing-disk"
    """EIO: syncs fail, and some commits of the vault do; for a high `amount`, only the blocks of the vault are bad."""
    WIPE = "wipe"
    """The disk is lost; the node joins the cluster again after `for_s`."""
    WIPE_AND_MORE = "wipe-and-more"
    """As a wipe; and during the snapshot that the node gets then it dies, or is cut off from a leader that transfers
    leadership."""
    LEFT_BEHIND = "left-behind"
    """A member is cut off until it needs a snapshot, and dies when that has become its store: its log does not reflect
    that yet."""
    TORN_VAULT = "torn-vault"
    """Power is lost and the vault found damaged: it is removed."""
    FOREIGN_VAULT = "foreign-vault"
    """The vault is another node's, another cluster's, or of another history (`amount` selects): it is refused."""
    DAMAGE = "damage"
    """Power is lost, and a record of journal, store or vault is flipped or torn at the next start."""
    WALL_STEP = "wall-step"
    """The wall clock of a machine is set, forwards or back: no decision may depend on it. From then on its clocks run
    at another speed, as when a time service slews them."""
    TRANSFER = "transfer"
    REMOVE = "remove"
    """Removed from the Raft group by its administrator; added again after `for_s`, with a new disk."""
    COMPACT = "compact"
    """By request, up to the latest revision."""
    BACKUP = "backup"
    """An administrator requests one, and keeps it if it is complete."""
    RESTORE = "restore"
    """All members are lost, and restored from an earlier backup, `for_s` later at the earliest."""
    LOSE_QUORUM = "lose-quorum"
    """All members but one are lost; that one continues alone `for_s` later at the earliest; others join it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`at_s`: after the beginning of the safety phase."""

    at_s: float
    kind: Kind
    target: str
    other: str = ""
    for_s: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        between = f" and {self.other}" if self.other else ""
        return f"{self.at_s:.3f} {self.kind.value} {self.target}{between} for {self.for_s:.3f} s ({self.amount:.2f})"


Plan = tuple[Fault, ...]
SHORTEST_S = {Kind.ISOLATE_LONG: 4.5, Kind.LEFT_BEHIND: 4.0}
LONGEST_S = {
    Kind.CRASH: 3.0, Kind.CRASH_IN_WRITE: 2.0, Kind.CRASH_IN_START: 4.0, Kind.POWER: 4.0, Kind.PAUSE: 6.0,
    Kind.PAUSE_ISOLATED: 6.0, Kind.STOP: 2.0, Kind.ISOLATE: 6.0, Kind.ONE_WAY: 6.0, Kind.CUT: 6.0, Kind.FLAP: 5.0,
    Kind.SPLIT: 6.0, Kind.STORM: 6.0, Kind.SLOW_LINK: 6.0, Kind.SLOW_DISK: 5.0, Kind.FULL_DISK: 3.0,
    Kind.FAILING_DISK: 2.0, Kind.FULL_SEGMENTS: 5.0, Kind.DAMAGED_SEGMENTS: 2.0,
    Kind.WIPE: 2.0, Kind.WIPE_AND_MORE: 1.0, Kind.TORN_VAULT: 2.0, Kind.FOREIGN_VAULT: 1.0, Kind.REMOVE: 3.0,
    Kind.DAMAGE: 2.0, Kind.CRASH_IN_TURN: 2.0, Kind.STOP_SUSPECTED: 2.0, Kind.DROPPED_IN_RECOVERY: 1.0,
    Kind.PAUSE_BEFORE_GRANT: 1.0, Kind.RESTORE: 6.0, Kind.LOSE_QUORUM: 6.0, Kind.PAUSE_IN_TURN: 5.0,
    Kind.PAUSE_IN_READ: 4.0, Kind.RESTART_IN_READ: 4.0, Kind.SUSPEND: 5.0, Kind.STOP_IN_START: 1.0,
    Kind.ISOLATE_LONG: 7.0, Kind.LEFT_BEHIND: 9.0,
}  # fmt: skip
MANY = (
    Kind.CRASH, Kind.CRASH_IN_WRITE, Kind.CRASH_IN_TURN, Kind.POWER, Kind.PAUSE, Kind.PAUSE_ISOLATED, Kind.STOP,
    Kind.PAUSE_IN_TURN, Kind.PAUSE_IN_READ, Kind.RESTART_IN_READ, Kind.SUSPEND,
    Kind.ISOLATE, Kind.ISOLATE, Kind.ONE_WAY, Kind.ONE_WAY, Kind.CUT, Kind.FLAP, Kind.SPLIT, Kind.STORM, Kind.STORM,
    Kind.SLOW_LINK, Kind.SLOW_DISK, Kind.TRANSFER, Kind.COMPACT, Kind.WALL_STEP,
)  # fmt: skip
NETWORK = (
    Kind.ISOLATE, Kind.ONE_WAY, Kind.ONE_WAY, Kind.CUT, Kind.FLAP, Kind.SPLIT, Kind.STORM, Kind.SLOW_LINK,
    Kind.TRANSFER, Kind.PAUSE_IN_READ,
)  # fmt: skip
SEGMENTS = (
    *NETWORK, Kind.CRASH, Kind.CRASH, Kind.CRASH_IN_TURN, Kind.CRASH_IN_WRITE, Kind.POWER, Kind.POWER, Kind.STOP,
    Kind.PAUSE, Kind.PAUSE_IN_TURN, Kind.SLOW_DISK, Kind.COMPACT,
)  # fmt: skip
EXPIRY = (
    *SEGMENTS, Kind.FULL_SEGMENTS, Kind.FULL_SEGMENTS, Kind.FULL_SEGMENTS, Kind.DAMAGED_SEGMENTS, Kind.DAMAGED_SEGMENTS,
    Kind.WALL_STEP,
)  # fmt: skip
DISKS = (
    Kind.CRASH, Kind.CRASH_IN_WRITE, Kind.CRASH_IN_WRITE, Kind.CRASH_IN_TURN, Kind.POWER, Kind.SLOW_DISK,
    Kind.FULL_DISK, Kind.FAILING_DISK, Kind.TORN_VAULT, Kind.DAMAGE, Kind.DAMAGE, Kind.WIPE, Kind.COMPACT, Kind.STOP,
)  # fmt: skip
CLOCKS = (
    Kind.PAUSE, Kind.PAUSE_ISOLATED, Kind.CRASH, Kind.ISOLATE, Kind.ISOLATE, Kind.ONE_WAY, Kind.ONE_WAY, Kind.SPLIT,
    Kind.STORM, Kind.SLOW_LINK, Kind.SLOW_DISK, Kind.POWER, Kind.TRANSFER, Kind.PAUSE_IN_TURN, Kind.SUSPEND,
    Kind.WALL_STEP, Kind.ISOLATE_LONG, Kind.ISOLATE_LONG,
)  # fmt: skip
STRANGE = (
    Kind.FOREIGN_VAULT, Kind.FOREIGN_VAULT, Kind.CRASH_IN_START, Kind.CRASH_IN_START, Kind.COMPACT, Kind.ISOLATE,
    Kind.PAUSE, Kind.TRANSFER, Kind.WIPE_AND_MORE, Kind.WIPE_AND_MORE, Kind.STOP_SUSPECTED, Kind.DROPPED_IN_RECOVERY,
    Kind.PAUSE_BEFORE_GRANT, Kind.RESTART_IN_READ, Kind.SUSPEND,
    Kind.STOP_IN_START, Kind.STOP_IN_START, Kind.LEFT_BEHIND, Kind.LEFT_BEHIND,
)  # fmt: skip
RESTORES = (
    Kind.BACKUP, Kind.BACKUP, Kind.BACKUP, Kind.RESTORE, Kind.LOSE_QUORUM, Kind.CRASH, Kind.CRASH_IN_WRITE,
    Kind.POWER, Kind.PAUSE, Kind.ISOLATE, Kind.ONE_WAY, Kind.STORM, Kind.SLOW_DISK, Kind.COMPACT, Kind.WIPE, Kind.STOP,
    Kind.TRANSFER, Kind.WALL_STEP,
)  # fmt: skip
OF_MEMBERS = (Kind.WIPE, Kind.WIPE_AND_MORE, Kind.LEFT_BEHIND, Kind.REMOVE, Kind.TRANSFER, Kind.BACKUP)
LINKS = (Kind.ONE_WAY, Kind.CUT, Kind.FLAP, Kind.SLOW_LINK)
"""Between two nodes, or a node and clients."""
MEMBERS = (
    Kind.WIPE, Kind.REMOVE, Kind.TRANSFER, Kind.STOP, Kind.CRASH, Kind.ISOLATE, Kind.PAUSE, Kind.STOP_IN_START,
    Kind.LEFT_BEHIND, Kind.CRASH_IN_START, Kind.SLOW_LINK,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scenario:
    """`every_s`: between two faults, on average. `faults_s`: how long a whole run has faults. `drift`: of the clocks,
    if it is beyond what the product allows. `rare`: with an administrator, and followers with data beside their
    vaults. `segments`: with data nodes. `expiry`: a TTL rule comes and goes, volumes of segments fill up, and queries
    take longer."""

    name: str
    kinds: tuple[Kind, ...]
    every_s: float = 1.5
    faults_s: float = 40.0
    drift: float | None = None
    rare: bool = False
    segments: bool = False
    expiry: bool = False


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("many", MANY),
        Scenario("calm", (), faults_s=20.0),
        Scenario("network", NETWORK),
        Scenario("disks", DISKS, every_s=2.5),
        Scenario("members", MEMBERS, every_s=3.0, rare=True),
        Scenario("strange", STRANGE, every_s=2.5, faults_s=80.0, rare=True),
        Scenario("restores", RESTORES, faults_s=80.0),
        Scenario("drift", CLOCKS, drift=0.25),
        Scenario("segments", SEGMENTS, faults_s=30.0, segments=True),
        Scenario("expiry", EXPIRY, faults_s=30.0, segments=True, expiry=True),
        Scenario("storm", (*MANY, *DISKS, *MEMBERS), every_s=1.0, rare=True),
    )
}


def plan_of(seed: int, scenario: Scenario, faults_s: float, members: tuple[str, ...], nodes: tuple[str, ...]) -> Plan:
    """`faults_s`: the end of all faults, in seconds after the beginning of the safety phase."""
    chance = Random(f"faults {seed} {scenario.name}")
    plan: list[Fault] = []
    at = 0.0
    while scenario.kinds:
        at += scenario.every_s * 2 * chance.random()
        if at >= faults_s:
            break
        plan.append(_fault(chance, at, chance.choice(scenario.kinds), members, nodes))
    return tuple(plan)


def _fault(chance: Random, at: float, kind: Kind, members: tuple[str, ...], nodes: tuple[str, ...]) -> Fault:
    lot = chance.random()
    among = members if kind in OF_MEMBERS else nodes
    target = "leader" if lot < 0.35 else chance.choice(among)
    if kind is Kind.POWER and lot > 0.85:
        target = "all"
    others = [each for each in nodes if each != target]
    other = CLIENTS if kind in LINKS and chance.random() < 0.3 else chance.choice(others)
    shortest, longest = SHORTEST_S.get(kind, 0.0), LONGEST_S.get(kind, 0.0)
    for_s = shortest + (longest - shortest) * chance.random() ** 1.5
    return Fault(at, kind, target, other, for_s, chance.random())
