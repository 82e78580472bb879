"""The permissions of each path of the HTTP API: one line per route.

A rule is an `Access`, or a function that reads the request with the same readers as its handler and returns the rights
on keys. PER_REQUEST: the handler passes the caller on with the request, and `KeyValues` checks it. A route without a
rule is refused to every caller, and a test fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from palisade.api.http.request_body import query_of
from palisade.api.http.v1_catalog import LIST, body_of, with_name
from palisade.api.http.v1_segment_copies import SEGMENT, name_in
from palisade.api.http.v1_watch import watch_of
from palisade.api.permission_lookups import Lookups
from palisade.catalog.collections import collection_named
from palisade.catalog.publication import MANIFESTS
from palisade.catalog.segment import RECORDS
from palisade.metastore.requests import prefix_end
from palisade.service.authorization.callers import Access
from palisade.service.authorization.needs import Needs, needs_of, reading, writing
from palisade.service.authorization.operations import needs_of_object, needs_of_objects, needs_of_operation
from palisade.vault.regions import REGIONS_END, REGIONS_PREFIX

OPEN, AUTHENTICATED, NODES, ADMINS, PER_REQUEST = Access


Reads = Callable[[web.Request, Lookups], Awaitable[Needs]]
Rule = Access | Reads


# /v1: watches and requests that are not about keys.


async def watch(request: web.Request, look: Lookups) -> Needs:
    return needs_of(watch_of(request), look.lease_keys)


async def regions(request: web.Request, _: Lookups) -> Needs:
    return (reading(REGIONS_PREFIX, REGIONS_END),)


async def segment(request: web.Request, _: Lookups) -> Needs:
    return (reading(RECORDS + name_in(request).encode("utf-8", "replace")),)


async def rows_of_segment(request: web.Request, _: Lookups) -> Needs:
    """Writes the records of the data source, since its segment is published."""
    start = records_below(request.match_info["data_source"])
    return (writing(start, prefix_end(start)),)


async def segments(request: web.Request, _: Lookups) -> Needs:
    return (reading(RECORDS, prefix_end(RECORDS)),)


async def data_source(request: web.Request, _: Lookups) -> Needs:
    """The records of a data source; without one, all records."""
    start = records_below(request.query.get("data_source", ""))
    return (reading(start, prefix_end(start)),)


async def change_of_segments(request: web.Request, _: Lookups) -> Needs:
    """Reads and writes the records of a data source, and its manifest."""
    given = (await body_of(request)).get("data_source")
    source = given if type(given) is str else ""
    start, manifest = records_below(source), MANIFESTS + source.encode("utf-8", "replace")
    end = prefix_end(start)
    return reading(start, end), writing(start, end), reading(manifest), writing(manifest)


def records_below(source: str) -> bytes:
    return RECORDS + f"{source}/".encode("utf-8", "replace") if source else RECORDS


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
    """The rights that began a procedure suffice to read and cancel it."""
    return needs_of_operation(*await look.procedure(request.match_info["id"]))


RULES: dict[tuple[str, str], Rule] = {
    ("GET", "/livez"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/livez/{check}"): OPEN,
    ("GET", "/readyz/{check}"): OPEN,
    ("GET", "/health"): OPEN,
    ("GET", "/version"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/metrics"): AUTHENTICATED,
    ("GET", "/v1/login"): OPEN,
    ("POST", "/v1/login"): OPEN,
    ("POST", "/v3/auth/authenticate"): OPEN,
    ("GET", "/v1/kv"): PER_REQUEST,
    ("DELETE", "/v1/kv"): PER_REQUEST,
    ("GET", "/v1/kv/{key}"): PER_REQUEST,
    ("PUT", "/v1/kv/{key}"): PER_REQUEST,
    ("DELETE", "/v1/kv/{key}"): PER_REQUEST,
    ("POST", "/v1/put"): PER_REQUEST,
    ("POST", "/v1/range"): PER_REQUEST,
    ("POST", "/v1/delete"): PER_REQUEST,
    ("POST", "/v1/txn"): PER_REQUEST,
    ("GET", "/v1/export"): PER_REQUEST,
    ("GET", "/v1/watch"): watch,
    ("GET", "/v1/backup"): ADMINS,
    ("POST", "/v1/leases"): AUTHENTICATED,
    ("GET", "/v1/leases"): AUTHENTICATED,
    ("GET", "/v1/leases/{id}"): PER_REQUEST,
    ("DELETE", "/v1/leases/{id}"): PER_REQUEST,
    ("POST", "/v1/leases/{id}/keep-alive"): PER_REQUEST,
    ("POST", "/v1/compact"): ADMINS,
    ("GET", "/v1/digest"): AUTHENTICATED,
    ("GET", "/v1/alarms"): AUTHENTICATED,
    ("DELETE", "/v1/alarms/quota"): ADMINS,
    ("GET", "/v1/status"): AUTHENTICATED,
    ("GET", "/v1/members"): AUTHENTICATED,
    ("POST", "/v1/members"): NODES,
    ("DELETE", "/v1/members/{id}"): ADMINS,
    ("POST", "/v1/members/{id}/promote"): ADMINS,
    ("POST", "/v1/leader/transfer"): ADMINS,
    ("GET", "/v1/cluster"): AUTHENTICATED,
    ("POST", "/v1/cluster/init"): NODES,
    ("GET", "/v1/init"): AUTHENTICATED,
    ("POST", "/v1/init/{step}"): NODES,
    ("GET", "/v1/topology"): AUTHENTICATED,
    ("GET", "/v1/topology/nodes"): AUTHENTICATED,
    ("GET", "/v1/topology/nodes/{id}"): AUTHENTICATED,
    ("POST", "/v1/topology/join"): NODES,
    ("POST", "/v1/topology/recovered"): NODES,
    ("POST", "/v1/topology/leave"): NODES,
    ("GET", "/v1/recovery"): AUTHENTICATED,
    ("PUT", "/v1/recovery/catch-up-difference"): ADMINS,
    ("GET", "/v1/segments"): data_source,
    ("GET", "/v1/segments/lookup"): data_source,
    ("GET", f"/v1/segments/{SEGMENT}"): segment,
    ("POST", "/v1/segments/publish"): change_of_segments,
    ("POST", "/v1/segments/mark-unused"): change_of_segments,
    ("POST", "/v1/segments/set-replicas"): change_of_segments,
    ("POST", "/v1/segments/reset-loaded"): change_of_segments,
    ("POST", "/v1/segments/give-up"): change_of_segments,
    ("GET", "/v1/segments/realtime"): segments,
    ("POST", "/v1/segments/realtime"): change_of_segments,
    ("POST", f"/v1/segments/{SEGMENT}/rows"): rows_of_segment,
    ("POST", f"/v1/segments/{SEGMENT}/close"): rows_of_segment,
    ("GET", "/v1/segments/copies"): segments,
    ("GET", f"/v1/segments/{SEGMENT}/file"): segment,
    ("GET", f"/v1/segments/{SEGMENT}/rows"): segment,
    ("GET", "/v1/scenarios"): AUTHENTICATED,
    ("GET", "/v1/scenarios/{name}"): AUTHENTICATED,
    ("POST", "/v1/scenarios/{name}"): ADMINS,
    ("POST", "/v1/feed/{question}"): NODES,
    ("GET", "/v1/catalog"): AUTHENTICATED,
    ("POST", "/v1/catalog/operations/{operation}"): operation,
    ("GET", "/v1/catalog/{collection}"): objects,
    ("GET", "/v1/catalog/{collection}/{name}"): one_object,
    ("PUT", "/v1/catalog/{collection}/{name}"): create_object,
    ("DELETE", "/v1/catalog/{collection}/{name}"): drop_object,
    ("GET", "/v1/procedures"): ADMINS,
    ("GET", "/v1/procedures/{id}"): procedure,
    ("DELETE", "/v1/procedures/{id}"): procedure,
    ("GET", "/v1/fenced"): PER_REQUEST,
    ("GET", "/v1/fenced/{key}"): PER_REQUEST,
    ("GET", "/v1/fencing"): AUTHENTICATED,
    ("GET", "/v1/regions"): regions,
    ("GET", "/v1/regions/{name}"): regions,
    ("PUT", "/v1/regions/{name}"): ADMINS,
    ("PATCH", "/v1/regions/{name}"): ADMINS,
    ("DELETE", "/v1/regions/{name}"): ADMINS,
    ("POST", "/v3/kv/put"): PER_REQUEST,
    ("POST", "/v3/kv/range"): PER_REQUEST,
    ("POST", "/v3/kv/deleterange"): PER_REQUEST,
    ("POST", "/v3/kv/txn"): PER_REQUEST,
    ("POST", "/v3/kv/compaction"): ADMINS,
    ("POST", "/v3/lease/grant"): AUTHENTICATED,
    ("POST", "/v3/lease/revoke"): PER_REQUEST,
    ("POST", "/v3/kv/lease/revoke"): PER_REQUEST,
    ("POST", "/v3/lease/timetolive"): PER_REQUEST,
    ("POST", "/v3/kv/lease/timetolive"): PER_REQUEST,
    ("POST", "/v3/lease/leases"): AUTHENTICATED,
    ("POST", "/v3/kv/lease/leases"): AUTHENTICATED,
    ("POST", "/v3/maintenance/status"): AUTHENTICATED,
    ("POST", "/v3/maintenance/alarm"): PER_REQUEST,
    ("POST", "/v3/cluster/member/list"): AUTHENTICATED,
    ("POST", "/v3/watch"): AUTHENTICATED,
    ("POST", "/v3/lease/keepalive"): AUTHENTICATED,
}
"""/v3/watch and /v3/lease/keepalive check each message of their streams themselves."""

NO_SUCH_PATH = {"/v1/{rest}", "/v3/{rest}"}
"""Paths that a node that is no member refuses, naming the nodes that serve them."""


def rule_of(method: str, path: str | None) -> Rule | None:
    """`path`: as the router has it, None for an unknown path. None if there is no rule."""
    if path is None or path in NO_SUCH_PATH:
        return AUTHENTICATED
    return RULES.get(("GET" if method == "HEAD" else method, path))
