"""Which callers each path of the HTTP API admits (issue 4, N5)."""

from __future__ import annotations

import base64
import json
from importlib import resources
from typing import Any

import pytest
from aiohttp import ClientSession

from palisade.api.http.route_permissions import RULES, rule_of
from palisade.api.http.server import HttpServer
from palisade.api.http.v1_segment_copies import SEGMENT
from palisade.api.permission_lookups import NOTHING, Lookups
from palisade.api.services import NodeServices
from palisade.api.stream.call_permissions import CALL_RULES, needs_of_call
from palisade.api.stream.calls import Calls
from palisade.catalog.operations.all import KINDS
from palisade.catalog.segment import RECORDS
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import LeaseRevoke
from palisade.service.authorization.callers import Access
from palisade.service.authorization.needs import EVERYTHING
from palisade.service.authorization.operations import PLACES
from palisade.service.callers import UNRESTRICTED
from tests.support.permission_world import AS_NODE, Users, as_user
from tests.support.segment_names import name

DOCUMENT = json.loads(resources.files("palisade.api").joinpath("openapi.json").read_bytes())
OPERATIONS = [(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


V3_RANGE = {"key": b64("/a/k")}
CREATE_TABLE = {"columns": [{"name": "v", "type": "INT32"}]}

PROBES = ("/livez", "/readyz", "/livez/{check}", "/readyz/{check}", "/health", "/version", "/openapi.json")
OPEN = {("GET", path) for path in PROBES}
LOGINS = {("GET", "/v1/login"), ("POST", "/v1/login"), ("POST", "/v3/auth/authenticate")}

TABLE: dict[tuple[str, str], tuple[str, Any, set[str]]] = {
    # (method, path): (url, body, admitted callers of root, alice, bob, node). alice reads /a/ and writes /a/x/.
    ("GET", "/metrics"): ("/metrics", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/kv"): ("/v1/kv?prefix=/a/", None, {"root", "alice", "node"}),
    ("DELETE", "/v1/kv"): ("/v1/kv?prefix=/a/x/", None, {"root", "alice"}),
    ("GET", "/v1/kv/{key}"): ("/v1/kv/%2Fa%2Fk", None, {"root", "alice", "node"}),
    ("PUT", "/v1/kv/{key}"): ("/v1/kv/%2Fa%2Fx%2Fk", b"v", {"root", "alice"}),
    ("DELETE", "/v1/kv/{key}"): ("/v1/kv/%2Fa%2Fk", None, {"root"}),
    ("POST", "/v1/put"): ("/v1/put", {"key": "/a/k"}, {"root"}),
    ("POST", "/v1/range"): ("/v1/range", {"key": "/a/", "range_end": "/b"}, {"root", "node"}),
    ("POST", "/v1/delete"): ("/v1/delete", {"key": "/a/x/k"}, {"root", "alice"}),
    ("POST", "/v1/txn"): (
        "/v1/txn",
        {"compare": [{"key": "/a/k", "target": "version", "operand": 0}], "then": [{"put": {"key": "/a/x/k"}}]},
        {"root", "alice"},
    ),
    ("GET", "/v1/export"): ("/v1/export?prefix=/a/", None, {"root", "alice", "node"}),
    ("GET", "/v1/backup"): ("/v1/backup", None, {"root"}),
    ("GET", "/v1/watch"): ("/v1/watch?prefix=/a/", None, {"root", "alice", "node"}),
    ("POST", "/v1/leases"): ("/v1/leases", {"ttl_s": 60}, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/leases"): ("/v1/leases", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/leases/{id}"): ("/v1/leases/77", None, {"root", "alice", "node"}),
    ("DELETE", "/v1/leases/{id}"): ("/v1/leases/77", None, {"root"}),
    ("POST", "/v1/leases/{id}/keep-alive"): ("/v1/leases/77/keep-alive", None, {"root"}),
    ("POST", "/v1/compact"): ("/v1/compact", {"revision": 1}, {"root"}),
    ("GET", "/v1/digest"): ("/v1/digest", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/alarms"): ("/v1/alarms", None, {"root", "alice", "bob", "node"}),
    ("DELETE", "/v1/alarms/quota"): ("/v1/alarms/quota", None, {"root"}),
    ("GET", "/v1/status"): ("/v1/status", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/members"): ("/v1/members", None, {"root", "alice", "bob", "node"}),
    ("POST", "/v1/members"): ("/v1/members", {}, {"root", "node"}),
    ("DELETE", "/v1/members/{id}"): ("/v1/members/n9", None, {"root"}),
    ("POST", "/v1/members/{id}/promote"): ("/v1/members/n9/promote", None, {"root"}),
    ("POST", "/v1/leader/transfer"): ("/v1/leader/transfer", None, {"root"}),
    ("GET", "/v1/cluster"): ("/v1/cluster", None, {"root", "alice", "bob", "node"}),
    ("POST", "/v1/cluster/init"): ("/v1/cluster/init", {"members": ["n1"]}, {"root", "node"}),
    ("GET", "/v1/init"): ("/v1/init", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/topology"): ("/v1/topology", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/topology/nodes"): ("/v1/topology/nodes", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/topology/nodes/{id}"): ("/v1/topology/nodes/n1", None, {"root", "alice", "bob", "node"}),
    ("POST", "/v1/topology/join"): ("/v1/topology/join", {}, {"root", "node"}),
    ("POST", "/v1/topology/recovered"): ("/v1/topology/recovered", {}, {"root", "node"}),
    ("POST", "/v1/topology/leave"): ("/v1/topology/leave", {}, {"root", "node"}),
    ("GET", "/v1/recovery"): ("/v1/recovery", None, {"root", "alice", "bob", "node"}),
    ("PUT", "/v1/recovery/catch-up-difference"): ("/v1/recovery/catch-up-difference", {"difference": 1}, {"root"}),
    ("GET", "/v1/segments"): ("/v1/segments", None, {"root", "node"}),
    ("GET", "/v1/segments/lookup"): ("/v1/segments/lookup?data_source=flights", None, {"root", "node"}),
    ("GET", f"/v1/segments/{SEGMENT}"): (f"/v1/segments/{name(1)}", None, {"root", "node"}),
    ("POST", "/v1/segments/publish"): ("/v1/segments/publish", {"data_source": "flights"}, {"root"}),
    ("POST", "/v1/segments/mark-unused"): ("/v1/segments/mark-unused", {"data_source": "flights"}, {"root"}),
    ("POST", "/v1/segments/set-replicas"): ("/v1/segments/set-replicas", {"data_source": "flights"}, {"root"}),
    ("POST", "/v1/segments/reset-loaded"): ("/v1/segments/reset-loaded", {"data_source": "flights"}, {"root"}),
    ("POST", "/v1/segments/give-up"): ("/v1/segments/give-up", {"data_source": "flights"}, {"root"}),
    ("GET", "/v1/segments/realtime"): ("/v1/segments/realtime", None, {"root", "node"}),
    ("POST", "/v1/segments/realtime"): ("/v1/segments/realtime", {"data_source": "flights"}, {"root"}),
    ("POST", f"/v1/segments/{SEGMENT}/rows"): (f"/v1/segments/{name(1)}/rows", {"rows": [[1]]}, {"root"}),
    ("POST", f"/v1/segments/{SEGMENT}/close"): (f"/v1/segments/{name(1)}/close", {}, {"root"}),
    ("GET", "/v1/segments/copies"): ("/v1/segments/copies", None, {"root", "node"}),
    ("GET", f"/v1/segments/{SEGMENT}/file"): (f"/v1/segments/{name(1)}/file", None, {"root", "node"}),
    ("GET", f"/v1/segments/{SEGMENT}/rows"): (f"/v1/segments/{name(1)}/rows", None, {"root", "node"}),
    ("GET", "/v1/scenarios"): ("/v1/scenarios", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/scenarios/{name}"): ("/v1/scenarios/join", None, {"root", "alice", "bob", "node"}),
    ("POST", "/v1/scenarios/{name}"): ("/v1/scenarios/nothing", None, {"root"}),
    ("POST", "/v1/feed/{question}"): ("/v1/feed/state", None, {"root", "node"}),
    ("GET", "/v1/catalog"): ("/v1/catalog", None, {"root", "alice", "bob", "node"}),
    ("POST", "/v1/catalog/operations/{operation}"): (
        "/v1/catalog/operations/create-role", {"role": "r"}, {"root"},
    ),
    ("GET", "/v1/catalog/{collection}"): ("/v1/catalog/users", None, {"root", "node"}),
    ("GET", "/v1/catalog/{collection}/{name}"): ("/v1/catalog/users/alice", None, {"root", "node"}),
    ("PUT", "/v1/catalog/{collection}/{name}"): ("/v1/catalog/tables/plant.readings", CREATE_TABLE, {"root"}),
    ("DELETE", "/v1/catalog/{collection}/{name}"): ("/v1/catalog/users/bob", None, {"root"}),
    ("GET", "/v1/procedures"): ("/v1/procedures", None, {"root"}),
    ("GET", "/v1/procedures/{id}"): ("/v1/procedures/none", None, {"root", "alice", "bob", "node"}),
    ("DELETE", "/v1/procedures/{id}"): ("/v1/procedures/none", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/fenced"): ("/v1/fenced?prefix=/a/", None, {"root", "alice", "node"}),
    ("GET", "/v1/fenced/{key}"): ("/v1/fenced/%2Fa%2Fk", None, {"root", "alice", "node"}),
    ("GET", "/v1/fencing"): ("/v1/fencing", None, {"root", "alice", "bob", "node"}),
    ("GET", "/v1/regions"): ("/v1/regions", None, {"root", "node"}),
    ("GET", "/v1/regions/{name}"): ("/v1/regions/x", None, {"root", "node"}),
    ("PUT", "/v1/regions/{name}"): ("/v1/regions/x", {}, {"root"}),
    ("PATCH", "/v1/regions/{name}"): ("/v1/regions/x", {}, {"root"}),
    ("DELETE", "/v1/regions/{name}"): ("/v1/regions/x", None, {"root"}),
    ("POST", "/v3/kv/put"): ("/v3/kv/put", {"key": b64("/a/x/k")}, {"root", "alice"}),
    ("POST", "/v3/kv/range"): ("/v3/kv/range", V3_RANGE, {"root", "alice", "node"}),
    ("POST", "/v3/kv/deleterange"): ("/v3/kv/deleterange", {"key": b64("/a/x/k"), "prev_kv": True}, {"root", "alice"}),
    ("POST", "/v3/kv/txn"): (
        "/v3/kv/txn", {"success": [{"request_put": {"key": b64("/a/k")}}]}, {"root"},
    ),
    ("POST", "/v3/kv/compaction"): ("/v3/kv/compaction", {"revision": "1"}, {"root"}),
    ("POST", "/v3/lease/grant"): ("/v3/lease/grant", {"TTL": "60"}, {"root", "alice", "bob", "node"}),
    ("POST", "/v3/lease/revoke"): ("/v3/lease/revoke", {"ID": "77"}, {"root"}),
    ("POST", "/v3/kv/lease/revoke"): ("/v3/kv/lease/revoke", {"ID": "77"}, {"root"}),
    ("POST", "/v3/lease/timetolive"): ("/v3/lease/timetolive", {"ID": "77", "keys": True}, {"root", "alice", "node"}),
    ("POST", "/v3/kv/lease/timetolive"): (
        "/v3/kv/lease/timetolive", {"ID": "77"}, {"root", "alice", "bob", "node"},
    ),
    ("POST", "/v3/lease/leases"): ("/v3/lease/leases", {}, {"root", "alice", "bob", "node"}),
    ("POST", "/v3/kv/lease/leases"): ("/v3/kv/lease/leases", {}, {"root", "alice", "bob", "node"}),
    ("POST", "/v3/maintenance/status"): ("/v3/maintenance/status", {}, {"root", "alice", "bob", "node"}),
    ("POST", "/v3/maintenance/alarm"): (
        "/v3/maintenance/alarm", {"action": "DEACTIVATE", "alarm": "NOSPACE"}, {"root"},
    ),
    ("POST", "/v3/cluster/member/list"): ("/v3/cluster/member/list", {}, {"root", "alice", "bob", "node"}),
    ("POST", "/v3/watch"): ("/v3/watch", {"create_request": {"key": b64("/b")}}, {"root", "alice", "bob", "node"}),
    ("POST", "/v3/lease/keepalive"): ("/v3/lease/keepalive", {"ID": "77"}, {"root"}),
}  # fmt: skip
WHO = {"root": as_user("root"), "alice": as_user("alice"), "bob": as_user("bob"), "node": AS_NODE}


def test_every_operation_of_the_api_has_a_rule_and_a_line_here() -> None:
    """A new route without an authorization rule fails here, and is refused to every caller."""
    assert set(OPERATIONS) <= set(RULES)
    assert set(OPERATIONS) == set(TABLE) | OPEN | LOGINS


def test_every_route_that_is_served_has_a_rule(server: HttpServer) -> None:
    served = [
        (route.method, route.resource.canonical) for route in server.app.router.routes() if route.resource is not None
    ]
    assert served
    assert [each for each in served if rule_of(*each) is None] == []


def test_only_health_and_signing_in_are_open() -> None:
    assert {each for each, rule in RULES.items() if rule is Access.OPEN} == OPEN | LOGINS


def test_every_operation_of_the_catalog_has_a_rule() -> None:
    assert set(KINDS) == set(PLACES) | {"grant", "revoke", "drop-database", "deactivate-template"}


def test_every_call_of_the_stream_has_a_rule(services: NodeServices) -> None:
    assert set(Calls(services, "demo")._by_name) == set(CALL_RULES)


OF_THE_CLUSTER = {"ping", "status", "members", "topology", "leases", "digest", "fencing"}
"""Calls that need no right: they answer about the cluster, not about keys."""
FOR_ADMINS = {
    "procedures", "member_add", "member_promote", "member_remove", "transfer", "region_set", "region_change",
    "region_delete", "segments_announce", "segments_lease",
}  # fmt: skip
"""The last two are also for nodes."""
ARGUMENTS: dict[str, list[Any]] = {
    "lease_info": [77],
    "catalog_do": ["create-role", {"role": "r"}],
    "catalog_objects": ["users", ""],
    "catalog_object": ["users", "alice"],
    "procedure": ["1"],
    "procedure_cancel": ["1"],
    "segments_txn": [encode_command(LeaseRevoke(77))],
    "segments_lookup": ["flights"],
    "segments_list": ["flights"],
    "segment": [name(1)],
}


@pytest.mark.parametrize("call", CALL_RULES)
async def test_call_needs_a_right_unless_it_answers_about_the_cluster_and_every_right_if_it_changes_it(
    call: str,
) -> None:
    async def procedure(_: str) -> tuple[str, Any]:
        return "create-role", {"role": "r"}

    arguments = ARGUMENTS.get(call, [b"/a/", b"/b"])
    needs = await needs_of_call(call, arguments, Lookups(lambda lease: (b"/a/leased",), procedure))
    assert (needs == ()) == (call in OF_THE_CLUSTER)
    assert (needs == (EVERYTHING,)) == (call in FOR_ADMINS)


@pytest.mark.parametrize("call", ["segments_lookup", "segments_list", "segment"])
async def test_call_about_a_data_source_needs_the_right_to_read_its_records_and_no_others(call: str) -> None:
    for source, others in (("flights", RECORDS + b"flightsofbob/1"), ("", RECORDS[:-1])):
        (need,) = await needs_of_call(call, [source], NOTHING)
        assert need.key <= RECORDS + b"flights/1" < need.range_end
        assert not need.key <= others < need.range_end


@pytest.fixture
async def lease(users: Users) -> None:
    """With a key of its own: a caller that ends the lease deletes that key."""
    from palisade.metastore.requests import LeaseGrant, Put

    await users.service.write(LeaseGrant(6_000_000, 77), caller=UNRESTRICTED)
    await users.service.write(Put(b"/a/leased", b"", 77), caller=UNRESTRICTED)


@pytest.mark.parametrize(("method", "path"), TABLE)
async def test_each_route_admits_the_callers_in_the_table(
    http: ClientSession, users: Users, lease: None, method: str, path: str
) -> None:
    url, body, allowed = TABLE[method, path]
    given: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    let_in = set()
    for who, headers in WHO.items():
        if who == "root":
            continue
        async with http.request(method, url, headers=headers, **given) as answer:
            if answer.status not in (401, 403) or not await is_refusal(answer):
                let_in.add(who)
    assert let_in == allowed - {"root"}
    async with http.request(method, url, headers=WHO["root"], **given) as answer:
        assert answer.status not in (401, 403) or not await is_refusal(answer)


FLIGHTS = ("palisade/segments/records/flights/", "palisade/segments/manifests/flights")
FOR_A_CHANGE = [("admin", FLIGHTS[0]), ("admin", FLIGHTS[1])]
"""Every write below `palisade/` needs ADMIN."""
SEGMENT_RIGHTS = {
    ("POST", "/v1/segments/publish"): FOR_A_CHANGE,
    ("POST", "/v1/segments/mark-unused"): FOR_A_CHANGE,
    ("POST", "/v1/segments/set-replicas"): FOR_A_CHANGE,
    ("POST", "/v1/segments/reset-loaded"): FOR_A_CHANGE,
    ("POST", "/v1/segments/give-up"): FOR_A_CHANGE,
    ("POST", "/v1/segments/realtime"): FOR_A_CHANGE,
    ("POST", f"/v1/segments/{SEGMENT}/rows"): [("admin", FLIGHTS[0])],
    ("POST", f"/v1/segments/{SEGMENT}/close"): [("admin", FLIGHTS[0])],
    ("GET", "/v1/segments/lookup"): [("read", FLIGHTS[0])],
}


@pytest.mark.parametrize(("method", "path"), SEGMENT_RIGHTS)
async def test_route_of_a_data_source_needs_each_right_on_it_and_no_others(
    http: ClientSession, users: Users, method: str, path: str
) -> None:
    url, body, _ = TABLE[method, path]
    rights = SEGMENT_RIGHTS[method, path]
    narrow = [(privilege, f"{prefix}{name(1)[-8:]}") for privilege, prefix in rights]
    for grants, is_enough in (
        (rights, True),
        *(([each for each in rights if each != missing], False) for missing in rights),
        *(([*rights[:at], narrow[at], *rights[at + 1 :]], False) for at in range(len(rights))),
    ):
        await users.make("carol", *grants)
        async with http.request(method, url, headers=as_user("carol"), json=body) as answer:
            is_refused = answer.status in (401, 403) and await is_refusal(answer)
        assert is_refused != is_enough, grants


async def is_refusal(answer: Any) -> bool:
    text = await answer.text()
    return any(word in text for word in ("permission-denied", "permission denied", "unauthenticated", "auth token"))


@pytest.mark.parametrize(("method", "path"), [*TABLE, *sorted(OPEN)])
async def test_unauthenticated_callers_reach_only_health(http: ClientSession, method: str, path: str) -> None:
    url, body, _ = TABLE.get((method, path), (path.replace("{check}", "serializable_read"), None, set()))
    given: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    async with http.request(method, url, **given) as answer:
        if (method, path) in OPEN:
            assert answer.status in (200, 503)
        elif path.startswith("/v3/"):
            assert answer.status == 400
            assert (await answer.json())["code"] == 3
            assert (await answer.json())["error"] == "etcdserver: user name is empty"
        else:
            assert answer.status == 401
            assert answer.content_type == "application/problem+json"
            assert "Basic" in answer.headers["WWW-Authenticate"]
            assert (await answer.json())["code"] == "unauthenticated"


async def test_unknown_path_reveals_nothing_to_unauthenticated_callers(http: ClientSession) -> None:
    async with http.get("/v1/nothing") as answer:
        assert answer.status == 401
    async with http.get("/v1/nothing", headers=as_user("bob")) as answer:
        assert answer.status == 404


async def test_route_without_a_rule_is_refused_to_root(http: ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a route without a rule."""
    monkeypatch.delitem(RULES, ("GET", "/v1/status"))
    async with http.get("/v1/status", headers=as_user("root")) as answer:
        assert answer.status == 403
