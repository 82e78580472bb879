"""Everything that a simulated cluster can reach, by groups of rows. Pure.

The rows are those of the product's own enums, unions and tables at the time of the call. Allowed transitions are listed
here if the product has no table of them; a transition that is not listed is a failure of the run as well, so none is
forgotten.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import isfunction, signature
from typing import Any, get_args

import palisade.catalog.operations.all
import palisade.catalog.procedures
import palisade.fencing.holder_state
import palisade.fencing.lease
import palisade.fencing.messages
import palisade.fencing.registry
import palisade.fencing.release
import palisade.fencing.stage_chain
import palisade.fencing.verdict
import palisade.metastore.requests
import palisade.raftgroup.append_replies
import palisade.raftgroup.membership
import palisade.raftgroup.message_screen
import palisade.raftgroup.messages
import palisade.raftgroup.role
import palisade.raftgroup.snapshot_sender
import palisade.raftgroup.snapshot_transfer
import palisade.recovery.catchup
import palisade.recovery.decision
import palisade.recovery.report
import palisade.segments.realtime_step
import palisade.topology.admission_rules
import palisade.topology.join_state
import palisade.topology.swim.record
import palisade.vault.errors
import palisade.vault.regions
import palisade.vault.snapshot_reads
import tests.sim.damage
import tests.sim.faults
import tests.sim.readers
import tests.sim.vault_disk
from tests.sim import seen
from tests.sim.checkers.beyond_the_bound import EXCUSED
from tests.sim.coverage.data_nodes import COPIES, Busy, HandOffPhase
from tests.sim.coverage.naming import answers_of, name_of, names_of
from tests.sim.snapshot_trouble import Trouble

Changes = Mapping[Any, Iterable[enum.Enum]]


@dataclass(frozen=True, slots=True)
class Group:
    """`how`: what makes a run reach a row of it."""

    name: str
    rows: Callable[[], Iterable[str]]
    how: str


def holder_changes() -> Changes:
    state = palisade.fencing.messages.HolderPhase
    return {
        state.FENCED: (state.RECOVERING, state.STOPPED),
        state.RECOVERING: (state.ACTIVE, state.FENCED, state.STOPPED),
        state.ACTIVE: (state.FENCED,),
        state.STOPPED: (),
    }


def role_changes() -> Changes:
    """Of one start of a node."""
    role = palisade.raftgroup.role.RaftRole
    return {
        role.LEARNER: (role.FOLLOWER, role.REMOVED),
        role.FOLLOWER: (role.CANDIDATE, role.LEADER, role.LEARNER, role.REMOVED),
        role.CANDIDATE: (role.FOLLOWER, role.LEADER),
        role.LEADER: (role.FOLLOWER,),
        role.REMOVED: (role.LEARNER,),
    }


def life_changes() -> Changes:
    phase = palisade.topology.join_state.JoinPhase
    return {
        phase.SEEKING: (phase.JOINING,),
        phase.JOINING: (phase.RECOVERING, phase.REJECTED),
        phase.RECOVERING: (phase.FINISHING,),
        phase.FINISHING: (phase.ACTIVE, phase.JOINING),
        phase.ACTIVE: (phase.JOINING,),
        phase.REJECTED: (),
        phase.REMOVED: (),
    }


def swim_changes() -> Changes:
    """Of one node's knowledge of another; of itself, too."""
    state = palisade.topology.swim.record.SwimState
    return {
        state.ALIVE: (state.SUSPECT, state.LEFT),
        state.SUSPECT: (state.ALIVE, state.DEAD, state.LEFT),
        state.DEAD: (state.ALIVE, state.SUSPECT, state.LEFT),
        state.LEFT: (state.ALIVE, state.SUSPECT, state.DEAD),
    }


def compared(target: Any, result: Any, *, held: bool) -> str:
    return f"{name_of(target)} {name_of(result)} {'held' if held else 'not held'}"


def _compares() -> list[str]:
    """Nothing is less than 0 or than empty bytes; such compares are sent for absent keys only."""
    of = palisade.metastore.requests
    return [
        compared(target, result, held=held)
        for target in of.CompareTarget
        for result in of.CompareResult
        for held in (True, False)
    ]


PARTS: Mapping[str, Callable[[Any], bool]] = {
    "limit": lambda request: isinstance(request, palisade.metastore.requests.Range) and request.limit > 0,
    "keys only": lambda request: isinstance(request, palisade.metastore.requests.Range) and request.keys_only,
    "count only": lambda request: isinstance(request, palisade.metastore.requests.Range) and request.count_only,
    "order": lambda request: isinstance(request, palisade.metastore.requests.Range) and bool(request.sort_order),
    "delete of a range": lambda request: (
        isinstance(request, palisade.metastore.requests.DeleteRange) and bool(request.range_end)
    ),
    "delete in a transaction": lambda request: _holds(request, palisade.metastore.requests.DeleteRange),
    "transaction in a transaction": lambda request: _holds(request, palisade.metastore.requests.Txn),
    "kept value": lambda request: _keeps(request, "ignore_value"),
    "kept lease": lambda request: _keeps(request, "ignore_lease"),
}


def parts_of(request: Any) -> list[str]:
    """Its parts that few requests have."""
    return [name for name, has in PARTS.items() if has(request)]


def _steps(request: Any) -> list[Any]:
    return [*request.success, *request.failure] if isinstance(request, palisade.metastore.requests.Txn) else []


def _holds(request: Any, kind: type) -> bool:
    return any(isinstance(step, kind) or _holds(step, kind) for step in _steps(request))


def _keeps(request: Any, option: str) -> bool:
    return bool(getattr(request, option, False)) or any(_keeps(step, option) for step in _steps(request))


Table = Callable[[], Changes]


def changes(table: Table) -> Callable[[], list[str]]:
    return lambda: [change(before, now) for before, after in table().items() for now in after]


def change(before: Any, now: Any) -> str:
    return f"{name_of(before)} -> {name_of(now)}"


def _recoveries() -> list[str]:
    of = palisade.recovery.decision
    return names_of(of.Decision, narrow={of.Join: (of.Case.A, of.Case.STANDALONE)})


def memberships() -> list[str]:
    """The functions that derive another membership from one."""
    of = palisade.raftgroup.membership.Membership
    methods = [name for name, each in vars(of).items() if isfunction(each) and not name.startswith("_")]
    return [name for name in methods if signature(vars(of)[name]).return_annotation == of.__name__]


def message_kinds() -> list[Any]:
    return list(palisade.raftgroup.messages.MessageKind)


PRESSED = (
    "a stream pauses",
    "a stream resumes",
    "http pauses",
    "http resumes",
    "a member is given up",
    "a holder is given up",
)


FINISHED_INSTALL = "a start finishes an install"
OTHER_MEMBERSHIP = "a snapshot with another membership"
OTHER_PINS = "a snapshot with other pins"
IN_EVICTION = "a snapshot during an eviction"
WITHIN_LEASE = "hands over within a lease"
RARE_PATHS = (
    FINISHED_INSTALL, OTHER_MEMBERSHIP, OTHER_PINS, "dies in an eviction", IN_EVICTION, WITHIN_LEASE,
)  # fmt: skip


def _requests() -> list[str]:
    """A read without a response counts as refused, and has no unknown outcome."""
    ends = [name_of(kind) for kind in get_args(seen.Outcome)]
    return [
        f"{name_of(kind)} {end}"
        for kind in get_args(seen.Request)
        for end in ends
        if not (kind is palisade.metastore.requests.Range and end == name_of(seen.Unknown))
    ]


def _reads() -> list[str]:
    """The origin of the result, or the reason why there was none."""
    return names_of(
        palisade.vault.snapshot_reads.ReadOrigin,
        palisade.vault.errors.Fenced,
        palisade.vault.errors.Pending,
        palisade.vault.errors.Denied,
    )


GROUPS = (
    Group("fault", lambda: names_of(tests.sim.faults.Kind), "have a scenario of faults.py draw it"),
    Group(
        "stopped while",
        lambda: names_of(palisade.topology.join_state.JoinPhase),
        "stop nodes in every phase of their life",
    ),
    Group(
        "lost one way",
        lambda: ["answers", "questions", "anything of nodes"],
        "one-way losses between nodes, and between a node and clients",
    ),
    Group("snapshot trouble", lambda: names_of(Trouble), "wipe members that get a snapshot of several pieces"),
    Group("rare path", lambda: RARE_PATHS, "the scenarios with `rare`: members that are left behind, starts that die"),
    Group("beyond the bound", lambda: sorted(EXCUSED), "clocks that are wrong by more than the product allows"),
    Group("vault disk", lambda: names_of(tests.sim.vault_disk.Trouble), "slow, full and failing disks"),
    Group(
        "vault without power", lambda: names_of(tests.sim.vault_disk.Loss), "losses of power in the middle of writes"
    ),
    Group("vault of another boot", lambda: names_of(tests.sim.vault_disk.Found), "losses of power"),
    Group("damage refused", lambda: names_of(tests.sim.damage.Part), "have faults.py draw damage in some scenario"),
    Group(
        "holder state",
        lambda: names_of(palisade.fencing.messages.HolderPhase),
        "a start, a pause, a stop in good order",
    ),
    Group("holder change", changes(holder_changes), "pauses, cuts and stops while a node serves or recovers"),
    Group(
        "holder is not activated",
        lambda: names_of(palisade.fencing.holder_state.NotActivated),
        "cut or pause it while it recovers",
    ),
    Group(
        "holder is offered a grant",
        lambda: names_of(palisade.fencing.lease.GrantVerdict),
        "delay, repeat and reorder grants",
    ),
    Group(
        "holder is sent a stage",
        lambda: names_of(answers_of(palisade.fencing.holder_state.Holder.on_stage)),
        "cut its link",
    ),
    Group(
        "leader is asked for a lease",
        lambda: names_of(answers_of(palisade.fencing.release.Releases.renew)),
        "cut the leader off",
    ),
    Group("leader hears hello", lambda: names_of(palisade.fencing.registry.HolderStanding), "starts, wipes, elections"),
    Group(
        "verdict on a holder",
        lambda: names_of(palisade.fencing.verdict.Judgement),
        "strict writes while a holder is silent",
    ),
    Group(
        "verdict on a revision",
        lambda: names_of(palisade.fencing.verdict.VerdictOutcome),
        "strict writes while a holder is silent",
    ),
    Group("released", lambda: ["acknowledged", "by fence"], "strict writes while a holder is silent"),
    Group("fenced read", _reads, "reads at nodes that are cut off"),
    Group(
        "policy of a region",
        lambda: names_of(palisade.vault.regions.Policy),
        "reads of its region at nodes that are fenced",
    ),
    Group("raft role", lambda: names_of(palisade.raftgroup.role.RaftRole), "elections, wipes, removals"),
    Group("raft role change", changes(role_changes), "elections, wipes, removals"),
    Group(
        "raft message", lambda: names_of(palisade.raftgroup.messages.MessageKind), "elections, hand-overs, snapshots"
    ),
    Group(
        "append is received",
        lambda: names_of(answers_of(palisade.raftgroup.message_screen.screen_append)),
        "cut followers and leaders off",
    ),
    Group(
        "append is answered",
        lambda: names_of(palisade.raftgroup.append_replies.ReplyVerdict),
        "cut followers and leaders off",
    ),
    Group("back-pressure", lambda: PRESSED, "small windows, and readers that are paused"),
    Group("membership", memberships, "wipe or remove members"),
    Group(
        "snapshot is sent",
        lambda: names_of(palisade.raftgroup.snapshot_sender.TransferOutcome),
        "small logs and followers that are away",
    ),
    Group(
        "snapshot is refused",
        lambda: names_of(palisade.raftgroup.snapshot_transfer.TransferRefusal),
        "crash the receiver of a snapshot",
    ),
    Group("recovery decision", _recoveries, "crashes, wipes, compaction; a vault that is not its own"),
    Group("recovery next", lambda: names_of(palisade.recovery.catchup.Next), "a replay that never comes closer"),
    Group("recovery phase", lambda: names_of(palisade.recovery.report.RecoveryPhase), "recoveries of every case"),
    Group("recovery end", lambda: names_of(palisade.recovery.report.RecoveryOutcome), "recoveries of every case"),
    Group("life", lambda: names_of(palisade.topology.join_state.JoinPhase), "starts, pauses, cuts"),
    Group("life change", changes(life_changes), "starts, pauses, cuts"),
    Group(
        "topology verdict",
        lambda: names_of(palisade.topology.admission_rules.Verdict),
        "joins, also of nodes that must not join",
    ),
    Group("swim state", lambda: names_of(palisade.topology.swim.record.SwimState), "pauses, cuts, stops in good order"),
    Group("swim change", changes(swim_changes), "pauses, cuts, stops in good order"),
    Group("procedure", changes(lambda: palisade.catalog.procedures.NEXT), "catalog operations while nodes are cut off"),
    Group(
        "procedure done",
        lambda: list(palisade.catalog.operations.all.KINDS),
        "have the client of the catalog ask for it",
    ),
    Group("catalog answer", lambda: ["settled", "pending", "refused"], "ask for procedures, and look at them"),
    Group(
        "lookup of segments",
        lambda: ["complete", "missing", "unserved", "empty", "unknown", "replaced", "partitioned", "realtime"],
        "publish, announce and drop segments, and look them up",
    ),
    Group(
        "count of rows",
        lambda: ["complete", "empty", "realtime", "unavailable"],
        "count rows while nodes are killed and segments are handed off",
    ),
    Group(
        "realtime step",
        lambda: names_of(palisade.segments.realtime_step.RealtimeStep),
        "open, close and hand off realtime segments, and kill their ingesters",
    ),
    Group("copy of a segment", lambda: COPIES, "assign segments to other nodes, mark them unused, hand them off"),
    Group(
        "announcements lost",
        lambda: names_of(Busy),
        "cut a data node off for longer than its lease, while it moves copies",
    ),
    Group(
        "ingester killed",
        lambda: names_of(HandOffPhase),
        "kill ingesters of closed segments, and where others are assigned",
    ),
    Group(
        "broker is synced",
        lambda: ["at its start", "by a difference"],
        "have a node miss compacted revisions while its process goes on",
    ),
    Group(
        "large batch",
        lambda: ["closed", "abandoned", "swept", "cut off", "read at a cut", "undone in a slice"],
        "publish batches above one transaction, abandon some, and read them at cuts",
    ),
    Group("command", lambda: names_of(palisade.metastore.requests.Command), "clients and faults that cause it"),
    Group("compare", _compares, "have clients compare with earlier results"),
    Group("compare is of", lambda: ["a key", "a range"], "have clients compare ranges"),
    Group("part of a request", lambda: list(PARTS), "have a client ask for it"),
    Group("request", _requests, "have a client send it, also while no node responds"),
    Group(
        "refusal", lambda: names_of(seen.Why), "have clients ask at nodes that are cut off, and what is not possible"
    ),
    Group("way of a reader", lambda: names_of(tests.sim.readers.Way), "have the reader beside a node go it"),
    Group(
        "waited read",
        lambda: ["Ok", "NotReached", "Fenced"],
        "have the reader beside a node wait for acknowledged revisions",
    ),
    Group("read stops", lambda: names_of(tests.sim.readers.Step), "have a fault stop a reader in the middle of a read"),
    Group("way of a request", lambda: names_of(seen.Path), "have a client go it, and be answered"),
    Group("watch event", lambda: names_of(seen.WatchEvent), "have clients watch what others write"),
    Group("watch ends", lambda: names_of(seen.Ending), "compaction and crashes while a client watches"),
)


def expected() -> dict[str, Group]:
    """The group of each row, by the name of the row in a count."""
    return {row(group.name, name): group for group in GROUPS for name in group.rows()}


def row(group: str, name: str) -> str:
    return f"{group}: {name}"
