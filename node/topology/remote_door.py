"""How a node that is no member of the Raft group asks the cluster about topology: over HTTP, at any node that answers.

Every request bears to be sent twice, so one that breaks off is sent again, to the next node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from node.http_request import Addresses, HttpRequests, NoAnswer
from node.topology.errors import JoinLater, JoinRejected, Reason
from node.topology.records import NodeRecord, Role, Standing
from node.topology.registrar import ClusterState
from node.topology.verdicts import JoinRequest
from raftgroup.errors import Unavailable

TIMEOUT_S = 10.0
FIELDS = (("id", str), ("instance", str), ("attempt", int), ("incarnation", int), ("addresses", dict))
"""Of the record of a node that are shown, sorted or counted with."""


class RemoteDoor:
    """`addresses`: HTTP addresses of nodes that may answer, the most likely first; asked again for every request.
    `headers`: by which the nodes know this one."""

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
        """Of the logical topology, and the version of the records. Raises Unavailable."""
        return nodes_from(await self.ask("GET", "/v1/topology/nodes"))

    @staticmethod
    def _record(answer: Any) -> NodeRecord:
        record = node_from(answer)
        if record is None:
            raise Unavailable("the cluster has answered without a record of this node: ask again")
        return record

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of the first node that has one. Raises JoinRejected, JoinLater, Unavailable."""
        trouble = "no node of the cluster is known yet: is a seed, or the node that --join names, up?"
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
        """Unavailable as a value: another node may know more."""
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
    """One that a newer version has is taken for what can't be mended."""
    return next((each for each in Reason if each.value == text), Reason.WRONG_VERSION)


def state_from(answer: Any) -> ClusterState:
    """Raises Unavailable for what is no cluster state message."""
    try:
        return ClusterState(**{name: answer[name] for name in ClusterState.__slots__})
    except (KeyError, TypeError):
        raise Unavailable("the answer is no state of a cluster: is the address that of a node?") from None


def nodes_from(answer: Any) -> tuple[list[NodeRecord], int]:
    """Raises Unavailable for what is no list of records."""
    try:
        rows, version = answer["nodes"], answer["version"]
        if type(rows) is not list or type(version) is not int:
            raise TypeError
        return [record for row in rows if (record := node_from({"node": row})) is not None], version
    except (KeyError, TypeError):
        raise Unavailable("the answer has no records of nodes: is the address that of a member?") from None


def node_from(answer: Any) -> NodeRecord | None:
    """Raises Unavailable for what is no record."""
    try:
        row = answer["node"]
        if row is None:
            return None
        if any(type(row[name]) is not kind for name, kind in FIELDS) or not all(
            type(each) is str for each in row["addresses"].values()
        ):
            raise TypeError
        return NodeRecord(
            row["id"], Role(row["role"]), Standing(row["standing"]), row["instance"], row["attempt"],
            row["incarnation"], row["addresses"], row["recovered_revision"] or 0, row["reason"] or "",
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise Unavailable("the answer is no record of a node: is the address that of a node?") from None
