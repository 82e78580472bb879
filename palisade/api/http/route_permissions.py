"""Which right each path of the HTTP API needs: one line per route, and no route without a line.

A rule is a word (`Who`) or a function that reads the request with the very readers that its handler uses and says which
keys it is about. BY_REQUEST: the handler hands the caller on with what it asks for, and that is checked where it is
done. A route without a rule is refused to every caller, and a test fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from palisade.api.http.request_body import query_of
from palisade.api.http.v1_catalog import LIST, body_of, with_name
from palisade.api.http.v1_watch import watch_of
from palisade.api.permission_lookups import Lookups
from palisade.catalog.collections import collection_named
from palisade.metastore.requests import prefix_end
from palisade.segments.names import PARTITIONS
from palisade.service.authorization.callers import Who
from palisade.service.authorization.needs import Needs, needs_of, reading
from palisade.service.authorization.operations import needs_of_object, needs_of_objects, needs_of_operation
from palisade.vault.regions import REGIONS_END, REGIONS_PREFIX

OPEN, SIGNED_IN, NODES, ADMINS, BY_REQUEST = Who


Reads = Callable[[web.Request, Lookups], Awaitable[Needs]]
Rule = Who | Reads


# /v1: watches and what is not a request for keys.


async def watch(request: web.Request, look: Lookups) -> Needs:
    return needs_of(watch_of(request), look.lease_keys)


async def regions(request: web.Request, _: Lookups) -> Needs:
    return (reading(REGIONS_PREFIX, REGIONS_END),)


async def partition(request: web.Request, _: Lookups) -> Needs:
    found = request.match_info
    return (reading(PARTITIONS + f"{found['table']}/{found['day']}".encode("utf-8", "replace")),)


async def partitions(request: web.Request, _: Lookups) -> Needs:
    return (reading(PARTITIONS, prefix_end(PARTITIONS)),)


# /v1: the catalog.


async def operation(request: web.Request, _: Lookups) -> Needs:
    return needs_of_operation(request.match_info["operation"], await body_of(request))


async def create_object(request: web.Request, _: Lookups) -> Needs:
    collection = collection_named(request.match_info["collection"])
    return needs_of_operation(collection.create, with_name(collection, request, await body_of(request)))


async def drop_object(request: web.Request, _: Lookups) -> Needs:
    collection = collection_named(request.match_info["collection"])
    return needs_of_operation(collection.drop, with_name(collection, request, await body_of(request)))


async def objects(request: web.Request, _: Lookups) -> Needs:
    return needs_of_objects(request.match_info["collection"], query_of(request, LIST).get("below", ""))


async def one_object(request: web.Request, _: Lookups) -> Needs:
    return needs_of_object(request.match_info["collection"], request.match_info["name"])


async def procedure(request: web.Request, look: Lookups) -> Needs:
    """Who could begin it may see it and take it back."""
    return needs_of_operation(*await look.procedure(request.match_info["id"]))


RULES: dict[tuple[str, str], Rule] = {
    ("GET", "/livez"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/metrics"): SIGNED_IN,
    ("GET", "/v1/login"): OPEN,
    ("POST", "/v1/login"): OPEN,
    ("POST", "/v3/auth/authenticate"): OPEN,
    ("GET", "/v1/kv"): BY_REQUEST,
    ("DELETE", "/v1/kv"): BY_REQUEST,
    ("GET", "/v1/kv/{key}"): BY_REQUEST,
    ("PUT", "/v1/kv/{key}"): BY_REQUEST,
    ("DELETE", "/v1/kv/{key}"): BY_REQUEST,
    ("POST", "/v1/put"): BY_REQUEST,
    ("POST", "/v1/range"): BY_REQUEST,
    ("POST", "/v1/delete"): BY_REQUEST,
    ("POST", "/v1/txn"): BY_REQUEST,
    ("GET", "/v1/export"): BY_REQUEST,
    ("GET", "/v1/watch"): watch,
    ("GET", "/v1/backup"): ADMINS,
    ("POST", "/v1/leases"): SIGNED_IN,
    ("GET", "/v1/leases"): SIGNED_IN,
    ("GET", "/v1/leases/{id}"): BY_REQUEST,
    ("DELETE", "/v1/leases/{id}"): BY_REQUEST,
    ("POST", "/v1/leases/{id}/keep-alive"): BY_REQUEST,
    ("POST", "/v1/compact"): ADMINS,
    ("GET", "/v1/digest"): SIGNED_IN,
    ("GET", "/v1/alarms"): SIGNED_IN,
    ("DELETE", "/v1/alarms/quota"): ADMINS,
    ("GET", "/v1/status"): SIGNED_IN,
    ("GET", "/v1/members"): SIGNED_IN,
    ("POST", "/v1/members"): NODES,
    ("DELETE", "/v1/members/{id}"): ADMINS,
    ("POST", "/v1/members/{id}/promote"): ADMINS,
    ("POST", "/v1/leader/transfer"): ADMINS,
    ("GET", "/v1/cluster"): SIGNED_IN,
    ("POST", "/v1/cluster/init"): NODES,
    ("GET", "/v1/init"): SIGNED_IN,
    ("POST", "/v1/init/{step}"): NODES,
    ("GET", "/v1/topology"): SIGNED_IN,
    ("GET", "/v1/topology/nodes"): SIGNED_IN,
    ("GET", "/v1/topology/nodes/{id}"): SIGNED_IN,
    ("POST", "/v1/topology/join"): NODES,
    ("POST", "/v1/topology/recovered"): NODES,
    ("POST", "/v1/topology/leave"): NODES,
    ("GET", "/v1/recovery"): SIGNED_IN,
    ("PUT", "/v1/recovery/catch-up-difference"): ADMINS,
    ("GET", "/v1/partitions"): partitions,
    ("GET", "/v1/partitions/{table}/{day}"): partition,
    ("GET", "/v1/scenarios"): SIGNED_IN,
    ("GET", "/v1/scenarios/{name}"): SIGNED_IN,
    ("POST", "/v1/scenarios/{name}"): ADMINS,
    ("POST", "/v1/feed/{question}"): NODES,
    ("GET", "/v1/catalog"): SIGNED_IN,
    ("POST", "/v1/catalog/operations/{operation}"): operation,
    ("GET", "/v1/catalog/{collection}"): objects,
    ("GET", "/v1/catalog/{collection}/{name}"): one_object,
    ("PUT", "/v1/catalog/{collection}/{name}"): create_object,
    ("DELETE", "/v1/catalog/{collection}/{name}"): drop_object,
    ("GET", "/v1/procedures"): ADMINS,
    ("GET", "/v1/procedures/{id}"): procedure,
    ("DELETE", "/v1/procedures/{id}"): procedure,
    ("GET", "/v1/fenced"): BY_REQUEST,
    ("GET", "/v1/fenced/{key}"): BY_REQUEST,
    ("GET", "/v1/fencing"): SIGNED_IN,
    ("GET", "/v1/regions"): regions,
    ("GET", "/v1/regions/{name}"): regions,
    ("PUT", "/v1/regions/{name}"): ADMINS,
    ("PATCH", "/v1/regions/{name}"): ADMINS,
    ("DELETE", "/v1/regions/{name}"): ADMINS,
    ("POST", "/v3/kv/put"): BY_REQUEST,
    ("POST", "/v3/kv/range"): BY_REQUEST,
    ("POST", "/v3/kv/deleterange"): BY_REQUEST,
    ("POST", "/v3/kv/txn"): BY_REQUEST,
    ("POST", "/v3/kv/compaction"): ADMINS,
    ("POST", "/v3/lease/grant"): SIGNED_IN,
    ("POST", "/v3/lease/revoke"): BY_REQUEST,
    ("POST", "/v3/kv/lease/revoke"): BY_REQUEST,
    ("POST", "/v3/lease/timetolive"): BY_REQUEST,
    ("POST", "/v3/kv/lease/timetolive"): BY_REQUEST,
    ("POST", "/v3/lease/leases"): SIGNED_IN,
    ("POST", "/v3/kv/lease/leases"): SIGNED_IN,
    ("POST", "/v3/maintenance/status"): SIGNED_IN,
    ("POST", "/v3/maintenance/alarm"): BY_REQUEST,
    ("POST", "/v3/cluster/member/list"): SIGNED_IN,
    ("POST", "/v3/watch"): SIGNED_IN,
    ("POST", "/v3/lease/keepalive"): SIGNED_IN,
}
"""/v3/watch and /v3/lease/keepalive look at each message of their streams themselves."""

NO_SUCH_PATH = {"/v1/{rest}", "/v3/{rest}"}
"""What a node that is no member refuses, saying who serves it."""


def rule_of(method: str, path: str | None) -> Rule | None:
    """`path`: as the router has it; None for one that is not served. None where nobody has said who may."""
    if path is None or path in NO_SUCH_PATH:
        return SIGNED_IN
    return RULES.get(("GET" if method == "HEAD" else method, path))
