"""/v1/topology and /v1/cluster: the nodes of the cluster, which of them may serve, and how a node joins."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from palisade.api.http.request_body import a_flag, a_list, a_number, a_text, fields_of, one_of, read_json, shown
from palisade.api.http.v1_keys import answer
from palisade.api.services import NodeServices
from palisade.metastore.errors import InvalidRequest
from palisade.raftgroup.errors import Unavailable
from palisade.topology.admission_rules import JoinRequest
from palisade.topology.records import ClusterRules, NodeRecord, NodeRole
from palisade.topology.registrar import Registrar
from palisade.topology.topology import Topology, cluster_view
from palisade.topology.view import logical_row, rules_of
from palisade.wire.error_codes import BadRequest
from palisade.wire.topology_errors import AlreadyInitialized


def addresses(value: Any, name: str) -> dict[str, str]:
    if type(value) is not dict or not all(type(each) is str for each in value.values()) or len(value) > 8:
        raise BadRequest(f'{name}: {shown(value)} is not an object of addresses such as {{"http": "127.0.0.1:7404"}}')
    return dict(value)


ROLES = {role.value: role for role in NodeRole}
JOIN = {
    "cluster": a_text, "protocol": a_number, "token": a_text, "name": a_text, "role": one_of(ROLES), "instance": a_text,
    "attempt": a_number, "addresses": addresses, "cluster_id": a_text,
}  # fmt: skip
INIT = {"members": a_list, "cancel": a_flag, "attempt": a_text, "timeout_ms": a_number}
RECOVERED = {"name": a_text, "instance": a_text, "incarnation": a_number, "revision": a_number}
LEAVE = {"name": a_text, "instance": a_text}
TEXT_MAX = 256


class TopologyRoutes:
    def __init__(self, services: NodeServices) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/cluster", self.cluster, allow_head=False),
            web.get("/v1/init", self.init, allow_head=False),
            web.post("/v1/cluster/init", self.initialize),
            web.get("/v1/topology", self.topology, allow_head=False),
            web.get("/v1/topology/nodes", self.nodes, allow_head=False),
            web.get("/v1/topology/nodes/{id}", self.node, allow_head=False),
            web.post("/v1/topology/join", self.join),
            web.post("/v1/topology/recovered", self.recovered),
            web.post("/v1/topology/leave", self.leave),
        ]

    @property
    def _topology(self) -> Topology:
        topology = self._services.topology
        if topology is None:
            raise InvalidRequest("this node runs without a cluster: it has no topology")
        return topology

    @property
    def _registrar(self) -> Registrar:
        registrar = self._topology.registrar
        if registrar is None:
            raise InvalidRequest("this node is no member of the Raft group: ask a member, listed by GET /v1/topology")
        return registrar

    async def cluster(self, request: web.Request) -> web.Response:
        return answer(cluster_view(await self._registrar.state()))

    async def init(self, request: web.Request) -> web.Response:
        """How this node came to its cluster; read by nodes that still initialize it."""
        return answer(self._services.participant().to_json())

    async def initialize(self, request: web.Request) -> web.Response:
        """Repeats the response of a completed initialization, or rejects a different one. Linearizable.

        A completed initialization never changes, so a node that knows it rejects another one also without a leader."""
        found = fields_of(await read_json(request), INIT)
        members = sorted({a_text(each, "members") for each in found.get("members", [])})
        self._check_same(members, cancel=found.get("cancel", False))
        await self._barrier()
        self._check_same(members, cancel=found.get("cancel", False))
        if self._rules() is None:
            raise Unavailable("the cluster is being initialized: its members wait for each other; retry")
        return answer({"initialized": True, "members": members})

    def _rules(self) -> ClusterRules | None:
        return rules_of(self._services.key_values.store.system)

    def _check_same(self, members: list[str], *, cancel: bool) -> None:
        """Raises AlreadyInitialized."""
        rules = self._rules()
        if rules is not None and (list(rules.members) != members or cancel):
            raise AlreadyInitialized(
                f"cluster {rules.cluster} is initialized with {', '.join(rules.members)}: other nodes join it with "
                "--join"
            )

    async def _barrier(self) -> None:
        """Raises Unavailable, which names the cluster if this node belongs to one; at once if no leader is known."""
        rules = self._rules()
        if rules is None:
            await self._services.key_values.barrier()
            return
        text = f"this node belongs to cluster {rules.cluster}, initialized with {', '.join(rules.members)}"
        if self._services.key_values.group.leader is None:
            raise Unavailable(f"{text}, but knows no leader: start the other members and retry")
        try:
            await self._services.key_values.barrier()
        except Unavailable as error:
            raise Unavailable(f"{text}, but: {error}") from None

    async def topology(self, request: web.Request) -> web.Response:
        return answer(self._topology.view())

    async def nodes(self, request: web.Request) -> web.Response:
        """Linearizable: the copy of the logical topology that nodes that are no members show."""
        records, version = await self._registrar.nodes()
        return answer({"nodes": [full_row(record) for record in records], "version": version})

    async def node(self, request: web.Request) -> web.Response:
        """Linearizable: a node checks here whether it is still part of the topology."""
        record = await self._registrar.look(request.match_info["id"])
        return answer({"node": full_row(record) if record is not None else None})

    async def join(self, request: web.Request) -> web.Response:
        found = required(await read_json(request), JOIN, optional={"token", "cluster_id", "addresses"})
        record = await self._registrar.join(
            JoinRequest(
                found["cluster"], found["protocol"], found.get("token"), found["name"], found["role"],
                found["instance"], found["attempt"], found.get("addresses", {}), found.get("cluster_id", ""),
            )
        )  # fmt: skip
        return answer({"node": full_row(record)})

    async def recovered(self, request: web.Request) -> web.Response:
        found = required(await read_json(request), RECOVERED)
        record = await self._registrar.recovered(
            found["name"], found["instance"], found["incarnation"], found["revision"]
        )
        return answer({"node": full_row(record)})

    async def leave(self, request: web.Request) -> web.Response:
        found = required(await read_json(request), LEAVE)
        return answer({"node": full_row(await self._registrar.leave(found["name"], found["instance"]))})


def full_row(record: NodeRecord) -> dict[str, Any]:
    """With the fields by which a node checks that the row is its own."""
    return {**logical_row(record), "attempt": record.attempt, "reason": record.reason or None}


def required(body: Any, spec: Any, optional: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    """Raises BadRequest for a field that is missing or too long."""
    found = fields_of(body, spec)
    missing = sorted(spec.keys() - found.keys() - optional)
    if missing:
        raise BadRequest(f"the body: {', '.join(missing)} is missing")
    for name, value in found.items():
        if isinstance(value, str) and not len(value) <= TEXT_MAX:
            raise BadRequest(f"{name}: has more than {TEXT_MAX} characters")
    for name in ("name", "instance"):
        if not found[name]:
            raise BadRequest(f"{name}: is empty")
    return found
