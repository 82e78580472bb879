"""Applies the topology verdicts: reads the records, decides, and writes if the records are unchanged.

Every member of the Raft group has a registrar and serves all requests. A write carries the versions of the records that
the decision is based on, so two registrars never overwrite each other. The leader's registrar also initializes the
cluster and drops nodes that the physical topology has lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.errors import SystemConflict
from palisade.metastore.requests import SystemWrite
from palisade.raftgroup.errors import NodeFailed, RaftError
from palisade.service.key_values import KeyValues
from palisade.topology.admission_rules import (
    JoinRequest,
    Keep,
    Later,
    Physical,
    RejectJoin,
    Verdict,
    WriteRecord,
    due_drops,
    judge_join,
    judge_leave,
    judge_recovered,
)
from palisade.topology.join_token import SALT_BYTES, token_fits, token_record
from palisade.topology.records import NODE_PREFIX, PROTOCOL_VERSION, RULES_NAME, ClusterRules, NodeRecord
from palisade.topology.view import node_of, nodes_of, present, rules_of
from palisade.wire.topology_errors import JoinLater, JoinRejected

log = logging.getLogger(__name__)

CONFLICTS_MAX = 8
LOOK_S = 0.25
UNSEEN_S = 30.0
"""How long a new leader waits before it drops a node it has never seen. Gossip after a full restart takes less."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster state message, which a node needs before it sends a join request. `revision`: LM."""

    cluster: str
    cluster_id: str
    generation: int
    protocol: int
    initialized: bool
    token_needed: bool
    revision: int
    minimal_revision: int
    leader: str | None


class Registrar:
    """`physical`: this node's SWIM view. `token`: the join token for a new cluster."""

    def __init__(self, service: KeyValues, cluster: str, physical: Callable[[], Physical], token: str | None) -> None:
        self._service = service
        self._cluster = cluster
        self._physical = physical
        self._token = token
        self.rejected = 0
        self.drops = 0

    @property
    def _records(self) -> Any:
        return self._service.store.system

    # Requests of nodes.

    async def state(self) -> ClusterState:
        """By a linearizable read. Raises Unavailable."""
        await self._service.barrier()
        return self.state_now()

    def state_now(self) -> ClusterState:
        """From this node's own store; not linearizable."""
        store, rules = self._service.store, rules_of(self._records)
        return ClusterState(
            cluster=self._cluster,
            cluster_id=store.lineage.cluster_id,
            generation=store.lineage.generation,
            protocol=rules.protocol if rules else PROTOCOL_VERSION,
            initialized=rules is not None,
            token_needed=bool(rules and rules.token),
            revision=store.revision,
            minimal_revision=store.minimal_revision,
            leader=self._service.group.leader,
        )

    async def join(self, request: JoinRequest) -> NodeRecord:
        """Raises JoinRejected, JoinLater, Unavailable."""

        def judge() -> Verdict:
            return judge_join(
                request,
                rules_of(self._records),
                self._service.store.lineage.cluster_id,
                node_of(self._records, request.name),
                self._physical().get(request.name),
                token_fits,
                sees_leader=self._sees_leader(),
            )

        return await self._carry_out(request.name, judge)

    def _sees_leader(self) -> bool:
        group = self._service.group
        presence = self._physical().get(group.leader) if group.leader is not None else None
        return group.leads or (presence is not None and presence.live)

    async def recovered(self, name: str, instance: str, incarnation: int, revision: int) -> NodeRecord:
        """RecoveryFinished. Raises JoinRejected, Unavailable."""

        def judge() -> Verdict:
            return judge_recovered(name, instance, incarnation, revision, node_of(self._records, name))

        return await self._carry_out(name, judge)

    async def leave(self, name: str, instance: str) -> NodeRecord:
        """Raises JoinRejected if another process has the name, Unavailable."""
        return await self._carry_out(name, lambda: judge_leave(name, instance, node_of(self._records, name)))

    async def look(self, name: str) -> NodeRecord | None:
        """The record of a node, by a linearizable read. Raises Unavailable."""
        await self._service.barrier()
        return node_of(self._records, name)

    async def nodes(self) -> tuple[list[NodeRecord], int]:
        """All validated or active nodes, and the version of the records; linearizable. Raises Unavailable."""
        await self._service.barrier()
        return present(nodes_of(self._records)), self._records.version

    async def _carry_out(self, name: str, judge: Callable[[], Verdict]) -> NodeRecord:
        for _ in range(CONFLICTS_MAX):
            await self._service.barrier()
            seen = self._versions(NODE_PREFIX + name, RULES_NAME)
            verdict = judge()
            if isinstance(verdict, Keep):
                return verdict.record
            if isinstance(verdict, Later):
                raise JoinLater(verdict.text)
            if isinstance(verdict, RejectJoin):
                self.rejected += 1
                log.warning("join rejected: node=%s verdict=%s reason=%s", name, verdict.reason.value, verdict.text)
                raise JoinRejected(verdict.reason, verdict.text)
            if await self._write(seen, [verdict]):
                record = verdict.record
                log.info(
                    "node record changed: node=%s standing=%s incarnation=%d",
                    name, record.standing.value, record.incarnation,
                )  # fmt: skip
                return record
        raise JoinLater(
            f"{CONFLICTS_MAX} attempts to write the record of {name} conflicted; nothing was written; retry"
        )

    def _versions(self, *names: str) -> tuple[tuple[str, int], ...]:
        return tuple((name, self._records.get(name).version) for name in names)

    async def _write(self, seen: tuple[tuple[str, int], ...], writes: list[WriteRecord]) -> bool:
        """False if the records have changed since `seen`. Raises Unavailable, OutcomeUnknown."""
        request = SystemWrite(seen, tuple((each.record.key, each.record.to_bytes()) for each in writes))
        return await self._propose(request)

    async def _propose(self, request: SystemWrite) -> bool:
        applied = await self._service.group.propose(encode_command(request), timeout_s=self._service.deadline_s)
        try:
            decode_result(applied.result)
        except SystemConflict:
            return False
        return True

    # Periodic work of the leader.

    async def watch(self) -> None:
        """Run until cancelled. Raises NodeFailed."""
        loop = asyncio.get_running_loop()
        leads_since: float | None = None
        while True:
            if not self._service.group.leads:
                leads_since = None
                await self._service.group.until_leads()
            await asyncio.sleep(LOOK_S)
            if not self._service.group.leads:
                continue
            leads_since = loop.time() if leads_since is None else leads_since
            try:
                await self._initialize()
                await self._drop(unseen_long=loop.time() - leads_since > UNSEEN_S)
            except NodeFailed:
                raise
            except RaftError as error:
                log.debug("topology maintenance postponed: error=%s", error)

    async def _initialize(self) -> None:
        """Once per cluster, after the first leader has chosen the cluster's ID."""
        store = self._service.store
        if rules_of(self._records) is not None or not store.lineage.cluster_id:
            return
        members = tuple(sorted(member.id for member in self._service.group.members.members))
        rules = ClusterRules(
            self._cluster, PROTOCOL_VERSION, token_record(self._token, os.urandom(SALT_BYTES)), members
        )
        request = SystemWrite(((RULES_NAME, 0),), ((RULES_NAME, rules.to_bytes()),))
        if await self._propose(request):
            log.info("cluster initialized: cluster=%s members=%s", self._cluster, ",".join(members))

    async def _drop(self, *, unseen_long: bool) -> None:
        removed = self._service.group.members.removed
        for record in due_drops(nodes_of(self._records), self._physical(), unseen_long, removed):
            seen = self._versions(record.key)
            if await self._write(seen, [WriteRecord(record)]):
                self.drops += 1
                log.warning("node dropped from the topology: node=%s reason=%s", record.name, record.reason)
