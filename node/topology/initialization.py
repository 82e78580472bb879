"""Initializing a cluster out of nodes that wait for it: prepare at all, then commit at all, or cancel. Pure (R9).

Each named node is a participant that keeps on disk how far it is; whichever node is asked is the coordinator, keeps
nothing, and works out the next step from what the participants say. So any node can go on with what another began.

What holds, and why:
- Idempotent: the same plan has the same name everywhere, and a participant answers a repetition with where it is.
- No two plans: a participant that has prepared one refuses another until the first is cancelled, and one that has
  committed refuses it for good.
- Cancellable until the first commit. A commit is sent only when all have prepared. If a cancel and a commit of two
  coordinators cross, some have committed and some have not: nothing is founded then, since the Raft group is founded
  only by all members that a plan names (`raftgroup/bootstrap.py`), and asking for the same plan again completes it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from base.errors import PalisadeError


class InitRefused(PalisadeError):
    """Not with this plan, or not any more: the text says why and what to do."""

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
        """Raises ValueError for what is no plan."""
        members = content.get("members") if isinstance(content, dict) else None
        cluster = content.get("cluster") if isinstance(content, dict) else None
        if not isinstance(cluster, str) or not isinstance(members, list) or not members:
            raise ValueError("a plan has a cluster and its members")
        if not all(isinstance(member, str) and len(member) < 400 for member in members):
            raise ValueError("a member of a plan is a text such as n1=127.0.0.1:7501:7401:7601")
        return InitPlan(cluster, tuple(sorted(members)))


@dataclass(frozen=True, slots=True)
class Participant:
    """Where one node stands: kept on disk before anybody is told."""

    state: InitState = InitState.IDLE
    plan: InitPlan | None = None

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state.value, "plan": self.plan.to_json() if self.plan else None}

    @staticmethod
    def from_json(content: Any) -> Participant:
        """Raises ValueError, KeyError or TypeError for what is none."""
        plan = content["plan"]
        return Participant(InitState(content["state"]), InitPlan.from_json(plan) if plan is not None else None)

    def prepare(self, plan: InitPlan, own: str) -> Participant:
        """`own`: this node as a plan has to name it. Raises InitRefused."""
        if own not in plan.members:
            raise InitRefused(
                f"the plan does not have {own}: its addresses have changed, or it is another node; ask again"
            )
        if self.plan is None:
            return Participant(InitState.PREPARED, plan)
        if self.plan == plan:
            return self
        held = ", ".join(self.plan.names)
        if self.state is InitState.COMMITTED:
            raise InitRefused(f"the cluster is being founded with {held}: other members join it when it runs")
        raise InitRefused(f"an initialization with {held} has begun: finish it, or cancel it (palisade init --cancel)")

    def commit(self, plan_id: str) -> Participant:
        """Raises InitRefused where it was cancelled meanwhile."""
        if self.plan is None or self.plan.id != plan_id:
            raise InitRefused("this initialization was not prepared here, or was cancelled: begin it again")
        return replace(self, state=InitState.COMMITTED)

    def cancel(self, plan_id: str) -> Participant:
        """Nothing to do for another plan. Raises InitRefused when it is too late."""
        if self.plan is None or self.plan.id != plan_id:
            return self
        if self.state is InitState.COMMITTED:
            names = ", ".join(self.plan.names)
            raise InitRefused(f"the cluster is being founded with {names}: it is too late to cancel that")
        return Participant()


@dataclass(frozen=True, slots=True)
class Prepare:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """These do not answer."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Every member has committed."""


Step = Prepare | Commit | Wait | Done


def next_step(plan: InitPlan, states: Mapping[str, Participant | None]) -> Step:
    """`states`: what each member says now; None for one that does not answer."""
    silent = tuple(name for name in plan.names if states.get(name) is None)
    known = {name: state for name in plan.names if (state := states.get(name)) is not None}
    mine = {name: state.state if state.plan == plan else InitState.IDLE for name, state in known.items()}
    idle = tuple(name for name, state in mine.items() if state is InitState.IDLE)
    if idle:
        return Prepare(idle)
    prepared = tuple(name for name, state in mine.items() if state is InitState.PREPARED)
    if silent and InitState.COMMITTED not in mine.values():
        return Wait(silent)
    if prepared:
        return Commit(prepared)
    return Wait(silent) if silent else Done()
