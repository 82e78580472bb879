"""Which right each path of the HTTP API needs: one line per route, and no route without a line.

A rule is a word (OPEN, SIGNED_IN, NODES, ADMINS) or a function that reads the request with the very readers that its
handler uses, on the very same bytes, and says which keys it is about. A route without a rule is refused to everybody,
and a test fails.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from metastore.requests import DeleteRange, LeaseKeepAlive, LeaseRevoke, Put, Range, prefix_end
from node.authorization.lookups import Lookups
from node.authorization.operations import needs_of_object, needs_of_objects, needs_of_operation
from node.catalog.collections import collection_named
from node.http import etcd_decode as decode
from node.http.body import a_flag, query_of, read_body, read_json
from node.http.etcd_alarm import Action, decode_alarm
from node.http.go_json import read_single
from node.http.v1_catalog import LIST, body_of, with_name
from node.http.v1_cluster import lease_id_of
from node.http.v1_fenced import fenced_key_of, fenced_range_of
from node.http.v1_forms import DELETE, RANGE, delete_from, put_from, range_from, txn_from, whereabouts
from node.http.v1_keys import EXPORT_QUERY, PUT_QUERY, condition_of, interval_of, key_of, prefix_parameter
from node.http.v1_watch import watch_of
from node.partitions.names import PARTITIONS
from service.authorization.needs import EVERYTHING, Needs, needs_of, reading
from vault.regions import REGIONS_END, REGIONS_PREFIX


class Who(enum.Enum):
    """OPEN: everybody. SIGNED_IN: every user, and nodes. NODES: nodes, and ADMIN. ADMINS: ADMIN on every key."""

    OPEN = "open"
    SIGNED_IN = "signed in"
    NODES = "nodes"
    ADMINS = "admins"


OPEN, SIGNED_IN, NODES, ADMINS = Who


Reads = Callable[[web.Request, Lookups], Awaitable[Needs]]
Rule = Who | Reads


# /v1: keys.


def compared(request: web.Request, key: bytes) -> Needs:
    """If-Match and If-None-Match tell what is there."""
    return () if condition_of(request, key) is None else (reading(key),)


async def read_key(request: web.Request, _: Lookups) -> Needs:
    return (reading(key_of(request)),)


async def write_key(request: web.Request, look: Lookups) -> Needs:
    put = Put(key=key_of(request), **query_of(request, PUT_QUERY))
    return needs_of(put, look.lease_keys) + compared(request, put.key)


async def delete_key(request: web.Request, look: Lookups) -> Needs:
    delete = DeleteRange(key=key_of(request), **query_of(request, {"prev_kv": a_flag}))
    return needs_of(delete, look.lease_keys) + compared(request, delete.key)


async def list_keys(request: web.Request, look: Lookups) -> Needs:
    found = interval_of(query_of(request, {**RANGE, "prefix": prefix_parameter}))
    return needs_of(Range(**found), look.lease_keys)


async def delete_many(request: web.Request, look: Lookups) -> Needs:
    found = interval_of(query_of(request, {**DELETE, "prefix": prefix_parameter}))
    return needs_of(DeleteRange(**found), look.lease_keys)


async def export(request: web.Request, _: Lookups) -> Needs:
    prefix = query_of(request, EXPORT_QUERY).get("prefix", b"")
    found = whereabouts({"key": prefix, "prefix": True}, "the query")
    return (reading(found["key"], found["range_end"]),)


async def watch(request: web.Request, look: Lookups) -> Needs:
    return needs_of(watch_of(request), look.lease_keys)


def form(read: Callable[[Any], Any]) -> Reads:
    async def needs(request: web.Request, look: Lookups) -> Needs:
        return needs_of(read(await read_json(request)), look.lease_keys)

    return needs


# /v1: leases and what else names keys.


async def lease(request: web.Request, look: Lookups) -> Needs:
    return tuple(map(reading, look.lease_keys(lease_id_of(request))))


async def lease_revoke(request: web.Request, look: Lookups) -> Needs:
    return needs_of(LeaseRevoke(lease_id_of(request)), look.lease_keys)


async def lease_keep_alive(request: web.Request, look: Lookups) -> Needs:
    return needs_of(LeaseKeepAlive(lease_id_of(request)), look.lease_keys)


async def read_fenced(request: web.Request, _: Lookups) -> Needs:
    return (reading(fenced_key_of(request)),)


async def read_fenced_range(request: web.Request, _: Lookups) -> Needs:
    found = fenced_range_of(request)
    return (reading(found["key"], found.get("range_end", b"")),)


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


# /v3.


def message(read: Callable[[Any], Any]) -> Reads:
    async def needs(request: web.Request, look: Lookups) -> Needs:
        return needs_of(read(read_single(await read_body(request))), look.lease_keys)

    return needs


async def v3_lease_revoke(request: web.Request, look: Lookups) -> Needs:
    return needs_of(LeaseRevoke(decode.decode_lease_id(read_single(await read_body(request)))), look.lease_keys)


async def v3_time_to_live(request: web.Request, look: Lookups) -> Needs:
    lease_id, with_keys = decode.decode_time_to_live(read_single(await read_body(request)))
    return tuple(map(reading, look.lease_keys(lease_id))) if with_keys else ()


async def v3_alarm(request: web.Request, _: Lookups) -> Needs:
    """To look is for everybody who is known."""
    asked = decode_alarm(read_single(await read_body(request)))
    return () if asked.action is Action.GET else (EVERYTHING,)


RULES: dict[tuple[str, str], Rule] = {
    ("GET", "/livez"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/metrics"): SIGNED_IN,
    ("POST", "/v1/login"): OPEN,
    ("POST", "/v3/auth/authenticate"): OPEN,
    ("GET", "/v1/kv"): list_keys,
    ("DELETE", "/v1/kv"): delete_many,
    ("GET", "/v1/kv/{key}"): read_key,
    ("PUT", "/v1/kv/{key}"): write_key,
    ("DELETE", "/v1/kv/{key}"): delete_key,
    ("POST", "/v1/put"): form(put_from),
    ("POST", "/v1/range"): form(range_from),
    ("POST", "/v1/delete"): form(delete_from),
    ("POST", "/v1/txn"): form(txn_from),
    ("GET", "/v1/export"): export,
    ("GET", "/v1/watch"): watch,
    ("GET", "/v1/backup"): ADMINS,
    ("POST", "/v1/leases"): SIGNED_IN,
    ("GET", "/v1/leases"): SIGNED_IN,
    ("GET", "/v1/leases/{id}"): lease,
    ("DELETE", "/v1/leases/{id}"): lease_revoke,
    ("POST", "/v1/leases/{id}/keep-alive"): lease_keep_alive,
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
    ("GET", "/v1/fenced"): read_fenced_range,
    ("GET", "/v1/fenced/{key}"): read_fenced,
    ("GET", "/v1/fencing"): SIGNED_IN,
    ("GET", "/v1/regions"): regions,
    ("GET", "/v1/regions/{name}"): regions,
    ("PUT", "/v1/regions/{name}"): ADMINS,
    ("PATCH", "/v1/regions/{name}"): ADMINS,
    ("DELETE", "/v1/regions/{name}"): ADMINS,
    ("POST", "/v3/kv/put"): message(decode.decode_put),
    ("POST", "/v3/kv/range"): message(decode.decode_range),
    ("POST", "/v3/kv/deleterange"): message(decode.decode_delete),
    ("POST", "/v3/kv/txn"): message(decode.decode_txn),
    ("POST", "/v3/kv/compaction"): ADMINS,
    ("POST", "/v3/lease/grant"): SIGNED_IN,
    ("POST", "/v3/lease/revoke"): v3_lease_revoke,
    ("POST", "/v3/kv/lease/revoke"): v3_lease_revoke,
    ("POST", "/v3/lease/timetolive"): v3_time_to_live,
    ("POST", "/v3/kv/lease/timetolive"): v3_time_to_live,
    ("POST", "/v3/lease/leases"): SIGNED_IN,
    ("POST", "/v3/kv/lease/leases"): SIGNED_IN,
    ("POST", "/v3/maintenance/status"): SIGNED_IN,
    ("POST", "/v3/maintenance/alarm"): v3_alarm,
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
