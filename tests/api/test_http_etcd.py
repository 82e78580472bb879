"""etcd's JSON paths without an etcd: streams, lost leaders, limits, what the differential test cannot reach."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession

from palisade.metastore.limits import Limits
from tests.support.fake_group import FakeGroup, fake_group


def encoded(value: bytes | str) -> str:
    return b64encode(value.encode() if isinstance(value, str) else value).decode()


async def post(http: ClientSession, path: str, body: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with http.post(path, data=data) as answer:
        return answer.status, json.loads(await answer.text())


async def line(answer: ClientResponse) -> Any:
    async with asyncio.timeout(5):
        return json.loads(await answer.content.readline())["result"]


ALARM = "/v3/maintenance/alarm"


class SmallStore:
    """Overrides the store of the tests: 2 keys fill it."""

    @pytest.fixture
    async def group(self) -> FakeGroup:
        return fake_group(Limits(quota_bytes=1000))


async def test_response_omits_zero_fields(http: ClientSession) -> None:
    status, first = await post(http, "/v3/kv/put", {"key": encoded("a")})
    assert (status, set(first), first["header"]["revision"]) == (200, {"header"}, "2")
    _, found = await post(http, "/v3/kv/range", {"key": encoded("a")})
    assert found["kvs"] == [{"key": "YQ==", "create_revision": "2", "mod_revision": "2", "version": "1"}]
    assert found["count"] == "1"
    assert set(found["header"]) == {"cluster_id", "member_id", "revision", "raft_term"}


@pytest.mark.parametrize("path", ["put", "range", "deleterange", "txn", "compaction"])
async def test_unknown_field_is_refused_by_its_name(http: ClientSession, group: FakeGroup, path: str) -> None:
    status, refusal = await post(http, f"/v3/kv/{path}", {"key": "YQ==", "prevkv": True})
    assert (status, refusal["code"]) == (400, 3)
    assert 'unknown field "' in refusal["message"]
    assert group.store.revision == 1


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b'{"key": "YQ=="} {"key": "Yg=="}',
        b'{"success":' * 900,
        b'{"success": [{"request_txn": ' * 100 + b"{}" + b"}]}" * 100,
        b'{"key": ' + b"9" * 10_000 + b"}",
        b"[" * 100_000,
        b'{"compare": [1]}',
        b'{"success": [null]}',
        b'{"success": [{"request_put": {"key": "YQ=="}, "request_range": {"key": "YQ=="}}]}',
        b'{"compare": [{"key": "YQ==", "target": 9}]}',
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
async def test_strange_bodies_are_refused_and_change_nothing(
    http: ClientSession, group: FakeGroup, body: bytes
) -> None:
    status, refusal = await post(http, "/v3/kv/txn", body)
    assert (status, refusal["code"]) == (400, 3)
    assert set(refusal) == {"error", "message", "code"}
    assert group.store.revision == 1


async def test_request_above_a_limit_is_refused(http: ClientSession, group: FakeGroup) -> None:
    big = encoded(b"v" * ((1 << 20) + 1))
    for path, body in (
        ("put", {"key": encoded("k" * 4097)}),
        ("put", {"key": encoded("a"), "value": big}),
        ("txn", {"success": [{"request_put": {"key": encoded(f"{n}"), "value": big[:1_000_000]}} for n in range(3)]}),
    ):
        status, refusal = await post(http, f"/v3/kv/{path}", body)
        assert (status, refusal["message"]) == (400, "etcdserver: request is too large")
    many = [{"request_put": {"key": encoded(str(number))}} for number in range(1025)]
    status, refusal = await post(http, "/v3/kv/txn", {"success": many})
    assert (status, refusal["message"]) == (400, "etcdserver: too many operations in txn request")
    assert group.store.revision == 1


class TestQuota(SmallStore):
    async def test_full_store_accepts_deletes_but_no_puts(self, http: ClientSession, group: FakeGroup) -> None:
        for number in range(8):
            status, refusal = await post(http, "/v3/kv/put", {"key": encoded(f"k{number}"), "value": encoded("v" * 99)})
        assert (status, refusal["code"]) == (429, 8)
        assert refusal["message"] == "etcdserver: mvcc: database space exceeded"
        assert (await post(http, "/v3/kv/deleterange", {"key": encoded("k0")}))[0] == 200
        async with http.put("/v1/kv/a", data=b"1") as answer:
            assert (answer.status, (await answer.json())["code"]) == (507, "quota-exceeded")
        async with http.get("/v1/alarms") as answer:
            assert [each["alarm"] for each in (await answer.json())["alarms"]] == ["quota"]

    async def test_alarm_is_shown_and_cleared_as_etcdctl_does_it(self, http: ClientSession, group: FakeGroup) -> None:
        """etcdctl lists the alarms, and clears each one by its member and its kind."""
        assert await post(http, ALARM, {}) == (200, {})
        for number in range(8):
            await post(http, "/v3/kv/put", {"key": encoded(f"k{number}"), "value": encoded("v" * 99)})
        status, found = await post(http, ALARM, {"action": "GET", "memberID": 0, "alarm": "NONE"})
        (alarm,) = found["alarms"]
        assert (status, alarm["alarm"]) == (200, "NOSPACE")
        assert await post(http, ALARM, {"alarm": "CORRUPT"}) == (200, {})
        shown = (await post(http, "/v3/maintenance/status", {}))[1]["errors"]
        assert shown == [f"memberID:{alarm['memberID']} alarm:NOSPACE "]
        clear = {"action": "DEACTIVATE", **alarm}
        status, refusal = await post(http, ALARM, clear)
        assert (status, refusal["message"]) == (429, "etcdserver: mvcc: database space exceeded")
        await make_room(http, group)
        assert await post(http, ALARM, clear | {"memberID": "7"}) == (200, {})
        assert await post(http, ALARM, clear | {"alarm": "NONE"}) == (200, {})
        assert await post(http, ALARM, clear) == (200, found)
        assert await post(http, ALARM, clear) == (200, {})
        assert (await post(http, "/v3/kv/put", {"key": encoded("k")}))[0] == 200

    async def test_alarm_cannot_be_raised_by_clients(self, http: ClientSession) -> None:
        status, refusal = await post(http, ALARM, {"action": "ACTIVATE", "alarm": "NOSPACE"})
        assert (status, refusal["code"]) == (501, 12)
        for body in ({"action": 9}, {"alarm": 9}, {"action": "FOO"}, {"alarms": "NOSPACE"}):
            assert (await post(http, ALARM, body))[0] == 400
        assert await post(http, ALARM, {}) == (200, {})


async def make_room(http: ClientSession, group: FakeGroup) -> None:
    _, deleted = await post(http, "/v3/kv/deleterange", {"key": encoded("k"), "range_end": encoded("l")})
    await post(http, "/v3/kv/compaction", {"revision": deleted["header"]["revision"]})
    while group.store.collecting:
        group.store.collect()


async def test_missing_leader_is_503_with_retry_after(http: ClientSession, group: FakeGroup) -> None:
    group.leading = False
    for path in ("put", "range"):
        async with http.post(f"/v3/kv/{path}", json={"key": "YQ=="}) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert (await answer.json())["code"] == 14


async def test_lost_majority_is_an_unknown_outcome(http: ClientSession, group: FakeGroup) -> None:
    group.majority = False
    status, refusal = await post(http, "/v3/kv/put", {"key": "YQ=="})
    assert (status, refusal["message"]) == (504, "etcdserver: request timed out")
    status, refusal = await post(http, "/v3/kv/range", {"key": "YQ=="})
    assert status == 503


async def test_serializable_read_needs_no_leader(http: ClientSession, group: FakeGroup) -> None:
    await post(http, "/v3/kv/put", {"key": "YQ=="})
    group.leading = False
    status, found = await post(http, "/v3/kv/range", {"key": "YQ==", "serializable": True})
    assert (status, found["count"]) == (200, "1")


async def test_read_waits_for_its_barrier_without_a_lease(http: ClientSession, group: FakeGroup) -> None:
    await post(http, "/v3/kv/put", {"key": "YQ=="})
    group.lease_valid = False
    for body in ({"key": "YQ=="}, {"key": "YQ==", "range_end": "eg=="}):
        status, found = await post(http, "/v3/kv/range", body)
        assert (status, found["count"]) == (200, "1")


# Watches.


async def test_watch_is_created_and_receives_events(http: ClientSession) -> None:
    async with http.post("/v3/watch", json={"create_request": {"key": "YQ=="}}) as answer:
        created = await line(answer)
        await post(http, "/v3/kv/put", {"key": "YQ==", "value": "MQ=="})
        heard = await line(answer)
    assert (created["created"], "watch_id" in created) == (True, False)
    assert heard["events"] == [
        {"kv": {"key": "YQ==", "create_revision": "2", "mod_revision": "2", "version": "1", "value": "MQ=="}}
    ]


async def test_watches_of_one_stream_have_ids_and_are_cancelled(http: ClientSession) -> None:
    body = b'{"create_request": {"key": "YQ==", "watch_id": 7}} {"create_request": {"key": "Yg==", "watch_id": 7}}'
    body += b'\n{"create_request": {"key": "Yg=="}}{"cancel_request": {"watch_id": 7}}'
    body += b'{"cancel_request": {"watch_id": 99}}{}'
    async with http.post("/v3/watch", data=body) as answer:
        seen = [await line(answer) for _ in range(4)]
        await post(http, "/v3/kv/put", {"key": "YQ=="})
        await post(http, "/v3/kv/put", {"key": "Yg=="})
        last = await line(answer)
    assert [(each.get("watch_id"), each.get("created"), each.get("canceled")) for each in seen] == [
        ("7", True, None),
        ("-1", True, True),
        (None, True, None),
        ("7", None, True),
    ]
    assert seen[1]["cancel_reason"] == "mvcc: duplicate watch ID provided on the WatchStream"
    assert [event["kv"]["key"] for event in last["events"]] == ["Yg=="]


async def test_compacted_watch_is_cancelled_with_the_oldest_revision(http: ClientSession) -> None:
    for _ in range(5):
        await post(http, "/v3/kv/put", {"key": "YQ=="})
    await post(http, "/v3/kv/compaction", {"revision": 4})
    async with http.post("/v3/watch", json={"create_request": {"key": "YQ==", "start_revision": 2}}) as answer:
        created, cancelled = await line(answer), await line(answer)
    assert created["created"] is True
    assert (cancelled["canceled"], cancelled["compact_revision"]) == (True, "4")


async def test_progress_is_sent_on_request(http: ClientSession) -> None:
    await post(http, "/v3/kv/put", {"key": "YQ=="})
    body = b'{"create_request": {"key": "YQ=="}}{"progress_request": {}}'
    async with http.post("/v3/watch", data=body) as answer:
        await line(answer)
        progress = await line(answer)
    assert (progress["watch_id"], progress["header"]["revision"]) == ("-1", "2")


async def test_requests_may_follow_while_the_watch_runs(http: ClientSession) -> None:
    more: asyncio.Event = asyncio.Event()

    async def body():  # type: ignore[no-untyped-def]
        yield b'{"create_request": {"ke'
        yield b'y": "YQ=="}}'
        await more.wait()
        yield b'{"cancel_request": {"watch_id": 0}}'

    async with http.post("/v3/watch", data=body()) as answer:
        assert (await line(answer))["created"] is True
        more.set()
        assert (await line(answer))["canceled"] is True


@pytest.mark.parametrize("path", ["/v3/watch", "/v3/lease/keepalive"])
@pytest.mark.parametrize("body", [b"garbage", b"{", b'{"nope": 1}', b"[]", b"\xff\xff"])
async def test_stream_with_an_invalid_first_message_is_refused(http: ClientSession, path: str, body: bytes) -> None:
    status, refusal = await post(http, path, body)
    assert (status, refusal["code"]) == (400, 3)


async def test_watch_of_a_disconnected_client_is_closed(http: ClientSession, group: FakeGroup) -> None:
    for path, body in (("/v3/watch", {"create_request": {"key": "YQ=="}}),):
        answer = await http.post(path, json=body)
        await line(answer)
        answer.close()
    async with asyncio.timeout(5):
        while True:
            async with http.get("/v1/status") as status:
                if (await status.json())["watchers"] == 0:
                    return


async def test_keep_alive_answers_each_message(http: ClientSession) -> None:
    await post(http, "/v3/lease/grant", {"ID": 5, "TTL": 60})
    async with http.post("/v3/lease/keepalive", data=b'{"ID": 5}{"ID": "6"}') as answer:
        first, second = await line(answer), await line(answer)
    assert (first["ID"], first["TTL"]) == ("5", "60")
    assert second["ID"] == "6"
    assert "TTL" not in second


async def test_page_of_another_origin_is_refused(http: ClientSession, group: FakeGroup) -> None:
    async with http.post("/v3/kv/put", json={"key": "YQ=="}, headers={"Origin": "http://evil.example"}) as answer:
        assert answer.status == 403
    async with http.get("/v1/status", headers={"Origin": "http://evil.example"}) as answer:
        assert (answer.status, answer.content_type) == (403, "application/problem+json")
    own = f"http://{http._base_url.host}:{http._base_url.port}"  # type: ignore[union-attr]
    async with http.post("/v3/kv/put", json={"key": "YQ=="}, headers={"Origin": own}) as answer:
        assert answer.status == 200
    assert group.store.revision == 2
