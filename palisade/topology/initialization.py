"""Two-phase initialization of a cluster: prepare on all members, then commit on all, or cancel. Pure (R9).

Each named node is a participant and stores its state on disk. The node that receives the request is the coordinator. It
stores nothing and derives the next step from the states of the participants, so any node can continue an initialization
that another one started.

Guarantees, and why they hold:
- Idempotent: the ID of a plan is a hash of its content, and a participant answers a repeated request with its state.
- One plan at a time: a prepared participant rejects another plan until the first is cancelled; a committed one rejects
  it permanently.
- Cancellable until the first commit. A commit is sent only after all participants have prepared. If the cancel of one
  coordinator crosses the commit of another, only some participants have committed. No cluster is founded then, because
  the Raft group needs all members of the plan (`raftgroup/founding.py`); requesting the same plan again completes it.
- Cancelled for good: a coordinator ends when a participant that had prepared is idle again. It does not prepare it once
  more, and cancels what it prepared meanwhile, so a coordinator that still runs, here or on another node, does not undo
  a cancel. A command repeats its request with the same attempt, so the next coordinator ends as well.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from palisade.base.errors import PalisadeError


class InitRefused(PalisadeError):
    """A participant rejects the plan. The text gives the reason and the remedy."""

    code = "init-refused"


class InitState(enum.Enum):
    IDLE = "idle"
    PREPARED = "prepared"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class InitPlan:
    """`members`: name=host:peer:http:stream of each founding member, as `--initial-cluster` takes them, sorted."""

    cluster: str
    members: tuple[str, ...]

    @property
    def id(self) -> str:
        return blake2b(" ".join([self.cluster, *self.members]).encode(), digest_size=8).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.partition("=")[0] for member in self.members)

    def to_json(self) -> dict[str, Any]:
        return {"cluster": self.cluster, "members": list(self.members)}

    @staticmethod
    def from_json(content: Any) -> InitPlan:
        """Raises ValueError for an invalid plan."""
        members = content.get("members") if isinstance(content, dict) else None
        cluster = content.get("cluster") if isinstance(content, dict) else None
        if not isinstance(cluster, str) or not isinstance(members, list) or not members:
            raise ValueError("invalid plan: it needs a cluster name and a non-empty list of members")
        if not all(isinstance(member, str) and len(member) < 400 for member in members):
            raise ValueError("invalid member in the plan: expected text such as n1=127.0.0.1:7501:7401:7601")
        return InitPlan(cluster, tuple(sorted(members)))


@dataclass(frozen=True, slots=True)
class Participant:
    """State of one participant. It is written to disk before it is sent."""

    state: InitState = InitState.IDLE
    plan: InitPlan | None = None

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state.value, "plan": self.plan.to_json() if self.plan else None}

    @staticmethod
    def from_json(content: Any) -> Participant:
        """Raises ValueError, KeyError or TypeError for invalid content."""
        plan = content["plan"]
        return Participant(InitState(content["state"]), InitPlan.from_json(plan) if plan is not None else None)

    def prepare(self, plan: InitPlan, own: str) -> Participant:
        """`own`: this node in the form of `InitPlan.members`. Raises InitRefused."""
        if own not in plan.members:
            raise InitRefused(
                f"the plan does not name this node ({own}): its name or addresses differ; run palisade init again"
            )
        if self.plan is None:
            return Participant(InitState.PREPARED, plan)
        if self.plan == plan:
            return self
        held = ", ".join(self.plan.names)
        if self.state is InitState.COMMITTED:
            raise InitRefused(
                f"the cluster is already being founded with {held}; other nodes can join once it is running"
            )
        raise InitRefused(
            f"another initialization, with {held}, is in progress: complete it, or cancel it with palisade init "
            "--cancel"
        )

    def commit(self, plan_id: str) -> Participant:
        """Raises InitRefused if the plan is not prepared here, for example because it was cancelled."""
        if self.plan is None or self.plan.id != plan_id:
            raise InitRefused("this initialization is not prepared here, or was cancelled: run palisade init again")
        return replace(self, state=InitState.COMMITTED)

    def cancel(self, plan_id: str) -> Participant:
        """Has no effect on another plan. Raises InitRefused once this participant has committed."""
        if self.plan is None or self.plan.id != plan_id:
            return self
        if self.state is InitState.COMMITTED:
            names = ", ".join(self.plan.names)
            raise InitRefused(f"cannot cancel: the cluster is already being founded with {names}")
        return Participant()


class CancelOutcome(enum.StrEnum):
    """What the cancel of a plan did at one participant."""

    CANCELLED = "cancelled"
    NOT_PREPARED = "not-prepared"
    OTHER_PLAN = "other-plan"
    """It has prepared another plan, which stays."""
    NO_ANSWER = "no-answer"
    """Unknown: if it has prepared the plan, it stays prepared."""


def outcome_of_cancel(before: Participant, after: Participant) -> CancelOutcome:
    if after.plan is not None:
        return CancelOutcome.OTHER_PLAN
    return CancelOutcome.NOT_PREPARED if before == after else CancelOutcome.CANCELLED


def outcome_in(response: Mapping[str, Any]) -> CancelOutcome:
    """That of a participant's response; a participant of an earlier version sends its state only."""
    unnamed = CancelOutcome.CANCELLED if response.get("plan") is None else CancelOutcome.OTHER_PLAN
    return CancelOutcome(response.get("outcome", unnamed))


@dataclass(frozen=True, slots=True)
class Prepare:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommitInit:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitInit:
    """The participants that do not answer."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InitDone:
    """Every participant has committed."""


@dataclass(frozen=True, slots=True)
class InitCancelled:
    """The participants that had prepared, and have not any more."""

    names: tuple[str, ...]


Step = Prepare | CommitInit | WaitInit | InitDone | InitCancelled


def holding(plan: InitPlan, states: Mapping[str, Participant | None]) -> frozenset[str]:
    """The participants that have prepared or committed the plan."""
    return frozenset(name for name, state in states.items() if state is not None and state.plan == plan)


def next_step(plan: InitPlan, states: Mapping[str, Participant | None], held: Collection[str] = frozenset()) -> Step:
    """`states`: the current state of each participant; None for one that does not answer. `held`: those that this
    coordinator has seen holding the plan."""
    silent = tuple(name for name in plan.names if states.get(name) is None)
    known = {name: state for name in plan.names if (state := states.get(name)) is not None}
    mine = {name: state.state if state.plan == plan else InitState.IDLE for name, state in known.items()}
    idle = tuple(name for name, state in mine.items() if state is InitState.IDLE)
    if cancelled := tuple(name for name in idle if name in held):
        return InitCancelled(cancelled)
    if idle:
        return Prepare(idle)
    prepared = tuple(name for name, state in mine.items() if state is InitState.PREPARED)
    if silent and InitState.COMMITTED not in mine.values():
        return WaitInit(silent)
    if prepared:
        return CommitInit(prepared)
    return WaitInit(silent) if silent else InitDone()
