"""Joins this node to the logical topology, keeps it there, and leaves it: executes the machine of `join_state.py`.

`RegistrarPort` is the interface to the registrar: a member of the Raft group calls its own, a follower calls one
over HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from palisade.base.network_reason import reason_of
from palisade.base.recurring_line import RecurringLine
from palisade.raftgroup.errors import NodeFailed, RaftError
from palisade.topology.admission_rules import JoinRequest, RejectJoin
from palisade.topology.join_state import JoinPhase, JoinState
from palisade.topology.records import PROTOCOL_VERSION, NodeRecord, NodeRole
from palisade.topology.registrar import ClusterState
from palisade.wire.topology_errors import JoinLater, JoinRejected, NodeRefused

log = logging.getLogger(__name__)

RETRY_S = 0.2
LOOK_S = 1.0
LEAVE_S = 0.5


class RegistrarPort(Protocol):
    """Each method raises Unavailable if no registrar answers."""

    async def state(self) -> ClusterState: ...
    async def join(self, request: JoinRequest) -> NodeRecord:
        """Raises JoinRejected, JoinLater."""
        ...

    async def recovered(self, name: str, instance: str, incarnation: int, revision: int) -> NodeRecord:
        """Raises JoinRejected."""
        ...

    async def leave(self, name: str, instance: str) -> NodeRecord: ...
    async def look(self, name: str) -> NodeRecord | None: ...


Recover = Callable[[ClusterState], Awaitable[int]]
"""Recovers from the node's vault to the cluster's state; returns LV. An exception stops the node."""


@dataclass(frozen=True, slots=True)
class JoinCandidate:
    """What a node states in its request to join. `instance`: of this process. `cluster`: the name of the cluster
    that it expects to find. `token`: of the cluster, if it requires one. `addresses`: by what listens there.
    """

    name: str
    role: NodeRole
    instance: str
    cluster: str
    token: str | None
    addresses: dict[str, str]


class TopologyMember:
    """`registrar`: the one to use now. `refusal`: why this node must stop, else None, by what SWIM has found: another
    process with its name, or seeds of another cluster. `cluster_id`: of the data on this node; empty if it has never
    been in a cluster.
    """

    def __init__(
        self,
        registrar: Callable[[], RegistrarPort],
        candidate: JoinCandidate,
        *,
        recover: Recover,
        cluster_id: Callable[[], str],
        refusal: Callable[[], str | None],
    ) -> None:
        self.life = JoinState()
        self.state: ClusterState | None = None
        self._registrar = registrar
        self._own = candidate
        self._recover = recover
        self._cluster_id = cluster_id
        self._refusal = refusal
        self._line = RecurringLine(counts=False)

    @property
    def name(self) -> str:
        return self._own.name

    def incarnation(self) -> int:
        """The incarnation of this node in the logical topology; 0 unless it is active there."""
        return self.life.incarnation if self.life.phase is JoinPhase.ACTIVE else 0

    async def run(self) -> None:
        """Run until cancelled. Raises NodeRefused, and what `recover` raises."""
        while True:
            refusal = self._refusal()
            if refusal is not None:
                raise NodeRefused(refusal)
            before = self.life
            try:
                self.life = await self._step(before)
            except JoinLater as later:
                self.life = before.wait_for(str(later))
            except JoinRejected as rejected:
                self.life = before.refused(RejectJoin(rejected.reason, str(rejected)))
            except NodeFailed:
                raise
            except RaftError as error:
                self.life = before.wait_for(str(error))
            self._log_change(before)
            if self.life.phase is JoinPhase.REJECTED:
                raise NodeRefused(f"{self._own.name} was rejected: {self.life.reason}")
            if self.life.phase is before.phase:
                await asyncio.sleep(LOOK_S if before.phase is JoinPhase.ACTIVE else RETRY_S)

    def _log_change(self, before: JoinState) -> None:
        now = self.life
        if now.phase is not before.phase:
            self._line = RecurringLine(counts=False)
            reason = f" reason={now.waiting}" if now.waiting else ""
            log.info("topology phase changed: node=%s phase=%s%s", self._own.name, now.phase.value, reason)
        elif now.waiting:
            text = f"topology waiting: node={self._own.name} phase={now.phase.value} reason={now.waiting}"
            line = self._line.holds(text, asyncio.get_running_loop().time())
            if now.waiting != before.waiting:
                log.info("%s", text)
            elif line is not None:
                log.warning("%s", line)

    async def _step(self, life: JoinState) -> JoinState:
        if life.phase is JoinPhase.SEEKING:
            self.state = await self._registrar().state()
            return life.found() if self.state.initialized else life.wait_for("the cluster is not initialized yet")
        if life.phase is JoinPhase.JOINING:
            return life.validated(await self._registrar().join(self._request(life)))
        if life.phase is JoinPhase.RECOVERING:
            self.state = await self._registrar().state()
            return life.has_recovered(await self._recover(self.state))
        if life.phase is JoinPhase.FINISHING:
            await self._registrar().recovered(self._own.name, self._own.instance, life.incarnation, life.recovered)
            return life.is_active()
        return life.saw(await self._registrar().look(self._own.name), self._own.instance)

    def _request(self, life: JoinState) -> JoinRequest:
        own = self._own
        return JoinRequest(
            own.cluster, PROTOCOL_VERSION, own.token, own.name, own.role, own.instance, life.attempt,
            own.addresses, self._cluster_id(),
        )  # fmt: skip

    async def leave(self) -> None:
        """Announce the departure, waiting at most `LEAVE_S`; otherwise failure detection finds it."""
        if self.life.phase not in (JoinPhase.RECOVERING, JoinPhase.FINISHING, JoinPhase.ACTIVE):
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._registrar().leave(self._own.name, self._own.instance)
        except (RaftError, JoinRejected, JoinLater, TimeoutError) as error:
            log.info("leave not announced: node=%s error=%s", self._own.name, reason_of(error))
