"""A follower's access to the registrars of the cluster, over HTTP, at any node that answers.

Every request is idempotent, so a failed one is sent again to the next node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palisade.base.http_request import Addresses, HttpRequests, NoAnswer
from palisade.raftgroup.errors import Unavailable
from palisade.topology.admission_rules import JoinRequest
from palisade.topology.records import NodeRecord, NodeRole, NodeStanding
from palisade.topology.registrar import ClusterState
from palisade.wire.topology_errors import JoinLater, JoinRejected, Reason

TIMEOUT_S = 10.0
FIELDS = (("id", str), ("instance", str), ("attempt", int), ("incarnation", int), ("addresses", dict))
"""Fields of a node's record whose types are checked, because the code below shows, sorts or compares them."""


class RemoteRegistrar:
    """`addresses`: HTTP addresses of nodes that may answer, the most likely first; called for every request. `headers`:
    the credentials of this node."""

    def __init__(self, addresses: Callable[[], Sequence[str]], headers: Mapping[str, str] | None = None) -> None:
        self._addresses = Addresses(addresses)
        self._requests = HttpRequests(headers, timeout_s=TIMEOUT_S)

    async def close(self) -> None:
        await self._requests.close()

    async def state(self) -> ClusterState:
        return state_from(await self.ask("GET", "/v1/cluster"))

    async def join(self, request: JoinRequest) -> NodeRecord:
        body = {
            "cluster": request.cluster, "protocol": request.protocol, "token": request.token, "name": request.name,
            "role": request.role.value, "instance": request.instance, "attempt": request.attempt,
            "addresses": dict(request.addresses), "cluster_id": request.cluster_id or None,
        }  # fmt: skip
        given = {name: value for name, value in body.items() if value is not None}
        return self._record(await self.ask("POST", "/v1/topology/join", given))

    async def recovered(self, name: str, instance: str, incarnation: int, revision: int) -> NodeRecord:
        body = {"name": name, "instance": instance, "incarnation": incarnation, "revision": revision}
        return self._record(await self.ask("POST", "/v1/topology/recovered", body))

    async def leave(self, name: str, instance: str) -> NodeRecord:
        return self._record(await self.ask("POST", "/v1/topology/leave", {"name": name, "instance": instance}))

    async def look(self, name: str) -> NodeRecord | None:
        return node_from(await self.ask("GET", f"/v1/topology/nodes/{name}"))

    async def nodes(self) -> tuple[list[NodeRecord], int]:
        """The nodes of the logical topology, and the version of the records. Raises Unavailable."""
        return nodes_from(await self.ask("GET", "/v1/topology/nodes"))

    @staticmethod
    def _record(answer: Any) -> NodeRecord:
        record = node_from(answer)
        if record is None:
            raise Unavailable("unexpected response: no record of this node; retry")
        return record

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The first answer. Raises JoinRejected, JoinLater, Unavailable."""
        trouble = "no node of the cluster is known yet; check that a seed or the node given with --join is running"
        for address in self._addresses.in_order():
            try:
                answer = await self._ask_one(address, method, path, body)
            except NoAnswer as error:
                trouble = str(error)
                continue
            if isinstance(answer, Unavailable):
                trouble = f"{address}: {answer}"
                continue
            self._addresses.answered(address)
            return answer
        raise Unavailable(trouble)

    async def _ask_one(self, address: str, method: str, path: str, body: Any) -> Any:
        """Unavailable is returned, not raised: another node may answer."""
        answer = await self._requests.json(address, path, method, body)
        if answer.status == 200:
            return answer.content
        problem = answer.content if isinstance(answer.content, dict) else {}
        if problem.get("code") == "join-rejected":
            raise JoinRejected(reason_of(problem.get("reason")), answer.detail)
        if problem.get("code") == "join-later":
            raise JoinLater(answer.detail)
        return Unavailable(answer.detail)


def reason_of(text: Any) -> Reason:
    """An unknown reason, from a newer version, counts as one that a retry cannot fix."""
    return next((each for each in Reason if each.value == text), Reason.WRONG_VERSION)


def state_from(answer: Any) -> ClusterState:
    """Raises Unavailable for any other shape."""
    try:
        return ClusterState(**{name: answer[name] for name in ClusterState.__slots__})
    except (KeyError, TypeError):
        raise Unavailable(
            "unexpected response: not a cluster state; check that the address is that of a node"
        ) from None


def nodes_from(answer: Any) -> tuple[list[NodeRecord], int]:
    """Raises Unavailable for any other shape."""
    try:
        rows, version = answer["nodes"], answer["version"]
        if type(rows) is not list or type(version) is not int:
            raise TypeError
        return [record for row in rows if (record := node_from({"node": row})) is not None], version
    except (KeyError, TypeError):
        raise Unavailable("unexpected response: no node records; check that the address is that of a member") from None


def node_from(answer: Any) -> NodeRecord | None:
    """None if the cluster has no record. Raises Unavailable for any other shape."""
    try:
        row = answer["node"]
        if row is None:
            return None
        if any(type(row[name]) is not kind for name, kind in FIELDS) or not all(
            type(each) is str for each in row["addresses"].values()
        ):
            raise TypeError
        return NodeRecord(
            row["id"], NodeRole(row["role"]), NodeStanding(row["standing"]), row["instance"], row["attempt"],
            row["incarnation"], row["addresses"], row["recovered_revision"] or 0, row["reason"] or "",
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise Unavailable("unexpected response: not a node record; check that the address is that of a node") from None
