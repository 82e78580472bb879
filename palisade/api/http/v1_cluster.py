"""/v1: leases, compaction, the state of the node, its members, its leader, digests and alarms."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from palisade.api.cluster_view import alarms_view, listed_members, status_view
from palisade.api.http.authorization_header import caller_of
from palisade.api.http.request_body import a_flag, a_number, a_text, a_time, fields_of, read_json, request_id_of
from palisade.api.http.v1_keys import answer
from palisade.api.services import NodeServices
from palisade.metastore.requests import (
    Command,
    Compact,
    DisarmAlarm,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    ttl_ms_of,
)
from palisade.service.authorization.needs import reading
from palisade.topology.member_request import new_member
from palisade.wire import json_results as shapes
from palisade.wire.error_codes import BadRequest

GRANT = {"ttl_s": a_time, "id": a_number}
COMPACT = {"revision": a_number}
TRANSFER = {"target": a_text}


def anything(value: Any, name: str) -> Any:
    """Parsed by `new_member`."""
    return value


MEMBER = {"id": a_text, "incarnation": a_text, "addresses": anything, "voter": a_flag}


class ClusterRoutes:
    """`name` is the name of the cluster."""

    def __init__(self, services: NodeServices, name: str) -> None:
        self._services, self._service = services, services.key_values
        self._name = name

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/leases", self.grant),
            web.get("/v1/leases", self.leases),
            web.get("/v1/leases/{id}", self.lease),
            web.delete("/v1/leases/{id}", self.revoke),
            web.post("/v1/leases/{id}/keep-alive", self.keep_alive),
            web.post("/v1/compact", self.compact),
            web.get("/v1/status", self.status),
            web.get("/v1/members", self.members),
            web.post("/v1/members", self.add),
            web.post("/v1/members/{id}/promote", self.promote),
            web.delete("/v1/members/{id}", self.remove),
            web.post("/v1/leader/transfer", self.transfer),
            web.get("/v1/digest", self.digest),
            web.get("/v1/alarms", self.alarms),
            web.delete("/v1/alarms/quota", self.disarm),
        ]

    # Leases.

    async def grant(self, request: web.Request) -> web.Response:
        found = fields_of(await read_json(request), GRANT)
        if "ttl_s" not in found:
            raise BadRequest("the body: ttl_s is missing: the seconds that the lease lives without a keep-alive")
        result = await self._write(request, LeaseGrant(ttl_ms_of(found["ttl_s"]), found.get("id", 0)))
        return answer(shapes.lease_shape(result), 201, {"Location": f"/v1/leases/{result.id}"})

    async def leases(self, request: web.Request) -> web.Response:
        return answer({"leases": [str(id_) for id_ in await self._service.leases()]})

    async def lease(self, request: web.Request) -> web.Response:
        lease_id = lease_id_of(request)
        caller_of(request).require(tuple(map(reading, self._service.lease_keys(lease_id))))
        return answer(shapes.lease_info_shape(await self._service.lease_info(lease_id)))

    async def revoke(self, request: web.Request) -> web.Response:
        result = await self._write(request, LeaseRevoke(lease_id_of(request)))
        return answer(shapes.lease_shape(result))

    async def keep_alive(self, request: web.Request) -> web.Response:
        await nothing_in(request)
        result = await self._write(request, LeaseKeepAlive(lease_id_of(request)))
        return answer(shapes.lease_shape(result))

    # The store.

    async def compact(self, request: web.Request) -> web.Response:
        found = fields_of(await read_json(request), COMPACT)
        if "revision" not in found:
            raise BadRequest("the body: revision is missing: the oldest revision that stays readable")
        result = await self._write(request, Compact(found["revision"]))
        return answer(shapes.compact_shape(result))

    async def digest(self, request: web.Request) -> web.Response:
        digest, lineage = await self._service.digest(), self._service.store.lineage
        shape = {"revision": digest.revision, "chain": digest.chain.hex(), "buckets": digest.buckets.hex()}
        return answer({**shape, "cluster_id": lineage.cluster_id, "generation": lineage.generation})

    async def alarms(self, request: web.Request) -> web.Response:
        return answer({"alarms": alarms_view(self._service)})

    async def disarm(self, request: web.Request) -> web.Response:
        result = await self._write(request, DisarmAlarm())
        return answer({"revision": result.revision, "cleared": bool(result.count)})

    async def _write(self, request: web.Request, write: Command) -> Any:
        return await self._service.write(write, request_id_of(request), caller=caller_of(request))

    # The group.

    async def status(self, request: web.Request) -> web.Response:
        return answer(status_view(self._services, self._name))

    async def members(self, request: web.Request) -> web.Response:
        return answer({"members": listed_members(self._service)})

    async def add(self, request: web.Request) -> web.Response:
        found = fields_of(await read_json(request), MEMBER)
        for name in ("id", "incarnation", "addresses"):
            if name not in found:
                raise BadRequest(f"the body: {name} is missing; a node that starts with --join sends all of it")
        member = new_member(found["id"], found["incarnation"], found["addresses"], found.get("voter", True))
        await self._service.group.add(member)
        return answer({"member": member.id}, 201)

    async def promote(self, request: web.Request) -> web.Response:
        await nothing_in(request)
        await self._service.group.promote(request.match_info["id"])
        return answer({"member": request.match_info["id"]})

    async def remove(self, request: web.Request) -> web.Response:
        await self._service.group.remove(request.match_info["id"])
        return answer({"member": request.match_info["id"]})

    async def transfer(self, request: web.Request) -> web.Response:
        given = await read_json(request)
        found = fields_of(given if given is not None else {}, TRANSFER)
        return answer({"leader": await self._service.group.transfer(found.get("target"))})


def lease_id_of(request: web.Request) -> int:
    number: int = a_number(request.match_info["id"], "the lease")
    return number


async def nothing_in(request: web.Request) -> None:
    """Raises BadRequest for a body that is not empty."""
    given = await read_json(request)
    if given is not None:
        fields_of(given, {})
