"""/v1: keys raw and as JSON, transactions, watches, leases, the cluster; every error is a problem (RFC 9457)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientSession

from palisade.api.http.server import HttpServer
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import FoundCluster
from palisade.raftgroup.generations import judge_generation
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.service.status import refusals_of, row_of
from tests.support.fake_group import FakeGroup


async def ask(http: ClientSession, method: str, url: str, body: Any = None, **options: Any) -> tuple[int, Any]:
    given = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    async with http.request(method, url, **given, **options) as answer:
        text = await answer.text()
        return answer.status, json.loads(text)


async def problem(http: ClientSession, method: str, url: str, body: Any = None, **options: Any) -> tuple[int, str, str]:
    """(status, code, detail) of a refusal."""
    given = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    async with http.request(method, url, **given, **options) as answer:
        assert answer.content_type == "application/problem+json", await answer.text()
        found = await answer.json()
    assert found["status"] == answer.status
    assert found["type"] == f"urn:palisade:problem:{found['code']}"
    return answer.status, found["code"], found["detail"]


# Keys.


async def test_value_is_stored_unchanged(http: ClientSession) -> None:
    value = bytes(range(256))
    status, written = await ask(http, "PUT", "/v1/kv/dir/%00%FF%2F%20name", value)
    assert (status, written) == (200, {"revision": 2})
    async with http.get("/v1/kv/dir/%00%FF%2F%20name") as answer:
        assert await answer.read() == value
        assert answer.headers["ETag"] == '"2"'
        assert (answer.headers["Palisade-Version"], answer.headers["Palisade-Mod-Revision"]) == ("1", "2")
    async with http.get("/v1/kv/dir/%00%FF%2F%20name", headers={"Accept": "application/json"}) as answer:
        shape = await answer.json()
    assert shape["kv"]["key_base64"] == "ZGlyLwD/LyBuYW1l"


async def test_json_document_is_stored_as_plain_value(http: ClientSession) -> None:
    await ask(http, "PUT", "/v1/kv/a", {"x": 1})
    async with http.get("/v1/kv/a") as answer:
        assert json.loads(await answer.read()) == {"x": 1}


async def test_ranges_by_prefix_and_by_bounds(http: ClientSession) -> None:
    for name in ("a/1", "a/2", "b/1"):
        await ask(http, "PUT", f"/v1/kv/{name}", b"v")
    _, found = await ask(http, "GET", "/v1/kv?prefix=a/&sort_order=descend&limit=1")
    assert ([kv["key"] for kv in found["kvs"]], found["more"], found["count"]) == (["a/2"], True, 2)
    _, found = await ask(http, "GET", "/v1/kv?key=a/2&range_end=b/2&keys_only=true")
    assert [kv["key"] for kv in found["kvs"]] == ["a/2", "b/1"]
    _, found = await ask(http, "GET", "/v1/kv?prefix=&count_only=1&revision=3")
    assert (found["count"], found["kvs"]) == (2, [])
    _, deleted = await ask(http, "DELETE", "/v1/kv?prefix=a/&prev_kv=true")
    assert (deleted["deleted"], len(deleted["prev_kvs"])) == (2, 2)


async def test_conditional_write_checks_the_current_version(http: ClientSession, group: FakeGroup) -> None:
    absent, first = {"If-None-Match": "*"}, {"If-Match": '"2"'}
    assert (await ask(http, "PUT", "/v1/kv/a", b"1", headers=absent))[0] == 200
    assert (await problem(http, "PUT", "/v1/kv/a", b"2", headers=absent))[:2] == (412, "precondition-failed")
    assert (await ask(http, "PUT", "/v1/kv/a", b"2", headers=first))[1] == {"revision": 3}
    assert (await problem(http, "DELETE", "/v1/kv/a", headers=first))[0] == 412
    assert (await problem(http, "PUT", "/v1/kv/b", b"1", headers={"If-Match": "*"}))[0] == 412
    assert (await problem(http, "PUT", "/v1/kv/b", b"1", headers={"If-Match": "abc"}))[0] == 400
    assert group.store.revision == 3


async def test_repeated_write_with_the_same_key_is_executed_once(http: ClientSession) -> None:
    """M3 over HTTP."""
    once = {"Idempotency-Key": "importer-7/1"}
    answers = [await ask(http, "PUT", "/v1/kv/a", b"1", headers=once) for _ in range(3)]
    assert answers == [(200, {"revision": 2})] * 3
    for wrong in ("abc", "/1", "a/x", "a/-1", "a/"):
        status, code, detail = await problem(http, "PUT", "/v1/kv/a", b"1", headers={"Idempotency-Key": wrong})
        assert (status, code) == (400, "bad-request")
        assert "Idempotency-Key" in detail


async def test_request_id_of_another_request_is_refused(http: ClientSession) -> None:
    """The stored result of a put made a lease grant fail as an internal error (fuzzing: HTTP port, seed 5501, round
    302)."""
    once = {"Idempotency-Key": "importer-7/1"}
    assert (await ask(http, "PUT", "/v1/kv/a", b"1", headers=once))[0] == 200
    for path, body in (("/v1/leases", {"ttl_s": 5}), ("/v1/delete", {"key": "a"}), ("/v1/txn", {"then": []})):
        status, code, detail = await problem(http, "POST", path, body, headers=once)
        assert (status, code) == (400, "invalid-request")
        assert "importer-7/1 was used before" in detail


async def test_transaction_in_its_json_form(http: ClientSession) -> None:
    form = {
        "compare": [{"target": "version", "key": "a", "operand": 0}],
        "success": [
            {"put": {"key": "a", "value": "1"}},
            {"txn": {"success": [{"put": {"key": "b", "value_base64": "/w=="}}]}},
        ],
        "failure": [{"range": {"key": "a"}}, {"delete": {"prefix": True, "key": "b", "prev_kv": True}}],
    }
    _, first = await ask(http, "POST", "/v1/txn", form)
    _, second = await ask(http, "POST", "/v1/txn", form)
    assert (first["succeeded"], first["revision"]) == (True, 2)
    assert second["results"][0]["range"]["kvs"][0]["value"] == "1"
    assert second["results"][1]["delete"]["prev_kvs"][0]["value_base64"] == "/w=="


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ({"key": "a", "vlaue": "x"}, "there is no field 'vlaue'"),
        ({"value": "x"}, "key is missing"),
        ({"key": 5}, "key: 5 is not a text"),
        ({"key": "a", "lease": "x"}, "lease: 'x' is not a whole number"),
        ({"key": "a", "lease": 1.5}, "lease: '1.5' is not a whole number"),
        ({"key": "a", "lease": 1 << 70}, "does not fit in 64 bits"),
        ({"key": "a", "prev_kv": "maybe"}, "prev_kv: 'maybe' is neither true nor false"),
        ({"key": "a", "key_base64": "YQ=="}, "either key or key_base64"),
        ({"key_base64": "*"}, "key_base64: is not base64"),
        ([], "is not an object"),
    ],
)
async def test_bad_field_is_named(http: ClientSession, group: FakeGroup, form: Any, complaint: str) -> None:
    status, code, detail = await problem(http, "POST", "/v1/put", form)
    assert (status, code) == (400, "bad-request")
    assert complaint in detail
    assert group.store.revision == 1


@pytest.mark.parametrize("query", ["kv/a?revision=-1", "kv?prefix=a&limit=-1", "export?prefix=a&revision=-1"])
async def test_negative_revision_or_limit_of_a_read_is_refused(http: ClientSession, query: str) -> None:
    """It was taken for 0."""
    status, code, detail = await problem(http, "GET", f"/v1/{query}")
    assert (status, code) == (400, "bad-request")
    assert detail.endswith(": -1 is negative; give 0 or more")


async def test_then_and_else_are_old_names_of_the_branches(http: ClientSession) -> None:
    """Issue 16, item 15: the names are those of etcd."""
    fails = [{"target": "version", "key": "a", "operand": 7}]
    old = {"compare": fails, "then": [{"put": {"key": "a"}}], "else": [{"put": {"key": "b"}}, {"range": {"key": "a"}}]}
    _, found = await ask(http, "POST", "/v1/txn", old)
    assert (found["succeeded"], len(found["results"])) == (False, 2)


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ({"success": [{"put": {"key": "a"}}, {"putt": {}}]}, "success 2: 'putt' is not one of put"),
        ({"failure": [{"txn": {"success": [{"range": {}}]}}]}, "failure 1: txn: success 1: range: key is missing"),
        ({"then": [], "success": []}, "the body: gives a branch twice, as success and as then: use success"),
        ({"then": [{"put": {"key": "a"}, "range": {"key": "b"}}]}, "then 1"),
        ({"then": [{"put": {"key": "a"}}, {"putt": {}}]}, "then 2: 'putt' is not one of put"),
        ({"compare": [{"key": "a"}]}, "compare 1: target is missing"),
        ({"compare": [{"key": "a", "target": "mod"}]}, "compare 1: operand is missing"),
        ({"compare": [{"key": "a", "target": "mod", "operand": "x"}]}, "compare 1: operand: 'x'"),
        ({"compare": [{"key": "a", "target": "size", "operand": 1}]}, "'size' is not one of version"),
        ({"else": [{"txn": {"then": [{"range": {}}]}}]}, "else 1: txn: then 1: range: key is missing"),
        ({"then": {}}, "then: {} is not a list"),
    ],
)
async def test_bad_transaction_names_the_place(http: ClientSession, form: Any, complaint: str) -> None:
    status, _, detail = await problem(http, "POST", "/v1/txn", form)
    assert status == 400
    assert complaint in detail


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{", "unexpected EOF"),
        (b"garbage", "invalid character 'g'"),
        (b'{"key": "a"} x', "after top-level value"),
        (b"\xff", "not UTF-8"),
        (b"[" * 50_000, "nested too deeply"),
        (b'{"key": ' + b"1" * 5000 + b"}", "invalid JSON"),
        (b'{"key": NaN}', "invalid character 'N'"),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_malformed_json_is_refused(http: ClientSession, body: bytes, complaint: str) -> None:
    kind = {"Content-Type": "application/json"}
    status, code, detail = await problem(http, "POST", "/v1/put", body, headers=kind)
    assert (status, code) == (400, "bad-request")
    assert complaint in detail


async def test_unknown_path_and_method_return_a_problem(http: ClientSession) -> None:
    assert (await problem(http, "GET", "/v2/keys"))[:2] == (404, "not-found")
    assert (await problem(http, "POST", "/v1/status"))[:2] == (405, "method-not-allowed")
    assert (await problem(http, "POST", "/v1/put", b"key=a"))[:2] == (415, "unsupported-media-type")
    assert (await problem(http, "GET", "/v1/kv?prefx=a"))[:2] == (400, "bad-request")
    assert (await problem(http, "GET", "/v1/kv"))[:2] == (400, "bad-request")
    assert (await problem(http, "GET", "/v1/kv?prefix=a&prefix=b"))[:2] == (400, "bad-request")
    assert (await problem(http, "GET", "/v1/leases/x"))[:2] == (400, "bad-request")


async def test_refusals_of_the_store_have_their_status(http: ClientSession, group: FakeGroup) -> None:
    for _ in range(4):
        await ask(http, "PUT", "/v1/kv/a", b"1")
    await ask(http, "POST", "/v1/compact", {"revision": 4})
    digest = group.store.digest()
    assert (await problem(http, "GET", "/v1/kv/b"))[:2] == (404, "key-not-found")
    assert (await problem(http, "GET", "/v1/kv/a?revision=99"))[:2] == (400, "future-revision")
    assert (await problem(http, "PUT", "/v1/kv/" + "k" * 4097, b"1"))[:2] == (413, "key-too-large")
    assert (await problem(http, "PUT", "/v1/kv/a", b"v" * ((1 << 20) + 1)))[:2] == (413, "value-too-large")
    assert (await problem(http, "PUT", "/v1/kv/a?lease=7", b"1"))[:2] == (404, "lease-not-found")
    assert (await problem(http, "POST", "/v1/compact", {"revision": 4}))[:2] == (410, "compacted")
    assert (await problem(http, "POST", "/v1/leases", {"ttl_s": 0}))[:2] == (400, "lease-ttl-invalid")
    async with http.get("/v1/kv/a?revision=3") as answer:
        assert (answer.status, (await answer.json())["minimal_revision"]) == (410, 4)
    many = {"then": [{"put": {"key": str(number)}} for number in range(1025)]}
    assert (await problem(http, "POST", "/v1/txn", many))[:2] == (413, "too-many-operations")
    assert group.store.digest() == digest


async def test_no_leader_and_no_majority_end_by_the_deadline(http: ClientSession, group: FakeGroup) -> None:
    group.leading = False
    async with http.put("/v1/kv/a", data=b"1") as answer:
        found = await answer.json()
        assert (answer.status, found["code"], found["retry"]) == (503, "unavailable", True)
        assert answer.headers["Retry-After"] == "1"
    assert (await problem(http, "GET", "/v1/kv/a"))[:2] == (503, "unavailable")
    group.leading, group.majority = True, False
    status, code, detail = await problem(http, "PUT", "/v1/kv/a", b"1")
    assert (status, code) == (504, "outcome-unknown")
    assert "may be applied or not" in detail
    assert "Idempotency-Key" in detail


# Watches and export.


async def test_watch_returns_changes_as_lines(http: ClientSession) -> None:
    await ask(http, "PUT", "/v1/kv/a", b"1")
    async with http.get("/v1/watch?prefix=a&start_revision=2&prev_kv=true") as answer:
        assert answer.content_type == "application/x-ndjson"
        await ask(http, "DELETE", "/v1/kv/a")
        lines = [json.loads(await answer.content.readline()) for _ in range(3)]
    assert lines[0] == {"watching": True, "revision": 2}
    assert [line["revision"] for line in lines[1:]] == [2, 3]
    assert (lines[2]["events"][0]["type"], lines[2]["events"][0]["prev_kv"]["value"]) == ("delete", "1")


async def test_watch_as_server_sent_events_resumes(http: ClientSession) -> None:
    for number in range(3):
        await ask(http, "PUT", "/v1/kv/a", str(number).encode())
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "3"}
    async with http.get("/v1/watch?key=a", headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        seen = [(await answer.content.readline()).decode().strip() for _ in range(5)]
    assert seen[2] == "id: 4"
    assert json.loads(seen[3].removeprefix("data: "))["events"][0]["kv"]["value"] == "2"


async def test_progress_reports_the_complete_revision(http: ClientSession) -> None:
    async with http.get("/v1/watch?key=a") as answer:
        await answer.content.readline()
        await ask(http, "PUT", "/v1/kv/b", b"1")
        found = {"progress": 0}
        async with asyncio.timeout(5):
            while found["progress"] < 2:
                found = json.loads(await answer.content.readline())
        assert found == {"progress": 2, "leader": "n1"}


async def test_progress_reports_a_missing_leader(http: ClientSession, group: FakeGroup) -> None:
    """Otherwise a client cannot distinguish this silence from one without changes."""
    async with http.get("/v1/watch?key=a") as answer:
        await answer.content.readline()
        group.led_by(None)
        async with asyncio.timeout(5):
            while json.loads(await answer.content.readline())["leader"] is not None:
                pass


async def test_watch_from_compacted_revision_is_refused(http: ClientSession) -> None:
    for _ in range(4):
        await ask(http, "PUT", "/v1/kv/a", b"1")
    await ask(http, "POST", "/v1/compact", {"revision": 4})
    assert (await problem(http, "GET", "/v1/watch?key=a&start_revision=2"))[:2] == (410, "compacted")
    for query in ("", "key=a&prefix=b", "key=a&filter=x", "prefix=a&range_end=b"):
        assert (await problem(http, "GET", f"/v1/watch?{query}"))[0] == 400


async def test_export_has_every_key_of_one_revision(http: ClientSession) -> None:
    operations = [{"put": {"key": f"k/{number:04}"}} for number in range(700)]
    await ask(http, "POST", "/v1/txn", {"then": operations})
    await ask(http, "POST", "/v1/txn", {"then": [{"put": {"key": f"l/{number:04}"}} for number in range(700)]})
    async with http.get("/v1/export?prefix=k/") as answer:
        lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert lines[0] == {"revision": 3, "count": 700}
    assert [line["key"] for line in lines[1:]] == [f"k/{number:04}" for number in range(700)]
    async with http.get("/v1/export?revision=2") as answer:
        assert len((await answer.text()).splitlines()) == 701


# The cluster.


async def test_leases_from_grant_to_revoke(http: ClientSession) -> None:
    status, granted = await ask(http, "POST", "/v1/leases", {"ttl_s": 60})
    assert status == 201
    url = f"/v1/leases/{granted['id']}"
    await ask(http, "PUT", f"/v1/kv/a?lease={granted['id']}", b"1")
    assert (await ask(http, "GET", url))[1]["keys"] == [{"key": "a"}]
    assert (await ask(http, "POST", f"{url}/keep-alive"))[1]["ttl_s"] == 60
    assert (await ask(http, "DELETE", url))[0] == 200
    assert (await problem(http, "GET", url))[:2] == (404, "lease-not-found")
    assert (await problem(http, "GET", "/v1/kv/a"))[0] == 404


async def test_lease_has_a_time_in_milliseconds(http: ClientSession) -> None:
    """Issue 17: the lease of a role has at most 1.5 s. etcd has whole seconds: its API rounds up."""
    granted = (await ask(http, "POST", "/v1/leases", {"ttl_s": 1.5, "id": 5}))[1]
    assert granted["ttl_s"] == 1.5
    assert (await ask(http, "POST", "/v1/leases/5/keep-alive"))[1]["ttl_s"] == 1.5
    info = (await ask(http, "GET", "/v1/leases/5"))[1]
    assert (info["granted_ttl_s"], 0 < info["ttl_s"] <= 1.5) == (1.5, True)
    async with http.post("/v3/lease/timetolive", data=b'{"ID": 5}') as answer:
        shown = await answer.json(content_type=None)
    assert (shown["grantedTTL"], shown.get("TTL", "0") in ("0", "1")) == ("2", True)
    async with http.post("/v3/lease/keepalive", data=b'{"ID": 5}') as answer:
        assert '"TTL":"2"' in await answer.text()
    assert (await problem(http, "POST", "/v1/leases", {"ttl_s": 0.05}))[:2] == (400, "lease-ttl-invalid")
    assert (await problem(http, "POST", "/v1/leases", {"ttl_s": 1e300}))[:2] == (400, "lease-ttl-invalid")
    assert (await problem(http, "POST", "/v1/leases", {"ttl_s": "soon"}))[:2] == (400, "bad-request")
    assert (await problem(http, "POST", "/v1/leases", {"ttl_s": True}))[:2] == (400, "bad-request")


async def test_membership_and_leadership(http: ClientSession, group: FakeGroup) -> None:
    member = {"id": "n2", "incarnation": "abc", "addresses": {"peer": "127.0.0.1:7502"}}
    assert (await ask(http, "POST", "/v1/members", member))[0] == 201
    assert (await problem(http, "POST", "/v1/members", member))[:2] == (409, "membership-refused")
    assert (await problem(http, "POST", "/v1/members", {"id": "n3"}))[0] == 400
    await ask(http, "POST", "/v1/members/n2/promote")
    assert [each["role"] for each in (await ask(http, "GET", "/v1/members"))[1]["members"]] == ["voter", "voter"]
    assert (await ask(http, "POST", "/v1/leader/transfer", {"target": "n2"}))[1] == {"leader": "n2"}
    assert (await problem(http, "POST", "/v1/leader/transfer", {"target": "n9"}))[:2] == (409, "membership-refused")
    assert (await ask(http, "DELETE", "/v1/members/n2"))[1] == {"member": "n2"}
    assert group.transfers == ["n2", "n9"]


async def test_readiness_returns_its_reasons(http: ClientSession, group: FakeGroup) -> None:
    """A new cluster is ready once it has an id: the id in its status does not change afterwards."""
    status, found = await ask(http, "GET", "/readyz")
    assert (status, len(found["reasons"])) == (503, 1)
    assert "the cluster has no id yet" in found["reasons"][0]
    group.apply([encode_command(FoundCluster("id-1"))])
    assert await ask(http, "GET", "/readyz") == (200, {"ready": True, "reasons": []})
    group.refusals["n2"] = str(judge_generation("n1", 2, 1, "abc"))
    assert await ask(http, "GET", "/readyz") == (200, {"ready": True, "reasons": []}), "one at fault is not this node"
    _, status_of_it = await ask(http, "GET", "/v1/status")
    (line,) = refusals_of([row_of(status_of_it, None)])
    assert line.startswith("n2 refuses n1: n1 is of generation 2")
    group.leading = False
    status, found = await ask(http, "GET", "/readyz")
    assert (status, found["ready"]) == (503, False)
    assert "n2 refuses this node: n1 is of generation 2" in found["reasons"][0]
    assert "no leader is known" in found["reasons"][1]
    assert (await ask(http, "GET", "/livez"))[0] == 200


async def test_metrics_include_what_operators_need(http: ClientSession, server: HttpServer) -> None:
    await ask(http, "PUT", "/v1/kv/a", b"1")
    async with http.get("/metrics") as answer:
        text = await answer.text()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values["palisade_revision"] == "2.0"
    assert values["palisade_minimal_revision"] == "1.0"
    assert values['palisade_role{role="leader"}'] == "1.0"
    assert values['palisade_proposals_total{outcome="applied"}'] == "1.0"
    assert values["palisade_write_seconds_count"] == "1.0"
    for name in ("commit_index", "applied_index", "term", "watchers", "leases", "store_bytes", "fsync_seconds_count"):
        assert f"palisade_{name}" in values
    assert values['palisade_elections_total{outcome="won"}'] == "0.0"
    assert values["palisade_snapshots_installed_total"] == "0.0"


async def test_metrics_have_the_progress_of_each_other_member(http: ClientSession, group: FakeGroup) -> None:
    """Issue 17 (seed 002): match and next index, retries and snapshots by peer; none of the node itself."""
    members = [Member(name, MemberRole.VOTER, "x", {}) for name in ("n1", "n2")]
    group.belongs_to(Membership(tuple(members)))
    async with http.get("/metrics") as answer:
        text = await answer.text()
    for name in ("peer_match_index", "peer_connected", "append_retries_total", "snapshots_sent_total"):
        assert f'palisade_{name}{{peer="n2"}}' in text
        assert f'palisade_{name}{{peer="n1"}}' not in text
    assert "palisade_peer_next_index{" not in text
