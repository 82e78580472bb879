"""Fenced reads over HTTP: responses from the vault, and the effect of each policy while the node is fenced.

Issue 4 ("the same reads over HTTP from any node, without a hop to the leader"), N6, F7. Each request is sent twice:
over the fast path, and through aiohttp, which gets every request with a query.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from aiohttp import ClientSession, ClientTimeout
from click.testing import CliRunner, Result

from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.cli.main import main
from palisade.metastore.requests import DeleteRange, Put
from palisade.raftgroup.errors import Unavailable
from palisade.service.callers import UNRESTRICTED
from palisade.service.cluster_fallback import asks_a_member, asks_own_cluster
from palisade.service.fenced_reads import WITHOUT_LEADER, FencedReads
from palisade.service.key_values import KeyValues
from palisade.vault.change import Item
from palisade.vault.errors import Fenced
from palisade.vault.fence_page import FENCE_BYTES, FencePage
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.regions import INFINITE_TTL, Mode, Policy, Region, pack_region, region_key
from palisade.vault.snapshot_reads import Rows
from palisade.vault.vault import Vault
from tests.support.fake_group import FakeGroup
from tests.support.meta_driver import Driver
from tests.support.vault_feed import follow, full, staged_of

REGIONS = (
    Region("s", b"/s/", Mode.STRICT, Policy.FAIL_CLOSED),
    Region("r", b"/r/", Mode.STRICT, Policy.REFETCH),
    Region("z", b"/z/", Mode.EVENTUAL, Policy.SAFE_DEFAULT, b"\xff safe"),
)
DENY, TTL = "palisade/catalog/permissions/users/alice", "palisade/catalog/ttl/db"
KEYS = ("/s/a", "/s/b", "/s/c", "/r/a", "/z/a", "/e/a", DENY, TTL)


class Node:
    """A vault that is served forever, beside a store that changes."""

    def __init__(self) -> None:
        self.driver: Driver = full([(region_key(each.name), pack_region(each)) for each in REGIONS])
        for key in KEYS:
            self.driver.do(Put(key.encode(), b"1"))
        self.page = FencePage(bytearray(FENCE_BYTES), b"thisboot")
        self.vault = Vault(MemoryBackend(), self.page)
        self.asked: list[tuple[bytes, bytes | None, int]] = []
        self.cluster: dict[bytes, bytes] | None = {b"/r/a": b"2", DENY.encode(): b"yes"}
        self.leaderless = False
        self.reads = FencedReads(self.ask, lambda: self.leaderless)
        self._moved = asyncio.Event()
        follow(self.vault, self.driver)
        self.vault.staging.release(self.driver.store.revision)
        self.reads.open(self.vault, self.changed, time.monotonic)
        self.serve()

    async def ask(self, start: bytes, end: bytes | None, limit: int) -> Rows:
        self.asked.append((start, end, limit))
        if self.cluster is None:
            raise Unavailable("no leader")
        items = [Item(key, value, 1, 50, 2, 0) for key, value in sorted(self.cluster.items())]
        found = [item for item in items if start <= item.key and (end is None or item.key < end)]
        return Rows(60, tuple(found[:limit] if limit else found))

    async def changed(self, seconds: float) -> None:
        self._moved.clear()
        await asyncio.wait({asyncio.ensure_future(self._moved.wait())}, timeout=seconds)

    def serve(self) -> None:
        self.page.serve(int((time.monotonic() + 1e6) * 1e9), 1)

    def write(self, key: str, value: str | None) -> int:
        """Committed and staged."""
        encoded = key.encode()
        self.driver.do(DeleteRange(encoded) if value is None else Put(encoded, value.encode()))
        self.vault.staging.stage(staged_of(self.driver, self.driver.store.revision))
        return self.driver.store.revision

    def release(self) -> None:
        self.vault.staging.release(self.driver.store.revision)
        self._moved.set()

    def apply(self) -> None:
        follow(self.vault, self.driver)
        self._moved.set()


@pytest.fixture
async def node() -> Node:
    return Node()


@pytest.fixture
async def asking(node: Node, service: KeyValues) -> AsyncIterator[ClientSession]:
    server = HttpServer(NodeServices(service, fenced=node.reads), "demo", "n1")
    await server.start("127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{server.port}", timeout=ClientTimeout(total=10)) as session:
        yield session
    await server.close()


WAYS = ("", "?revision=1")


async def get(http: ClientSession, path: str) -> tuple[int, str | None, dict[str, Any]]:
    async with http.get(path) as answer:
        return answer.status, answer.headers.get("Palisade-Answered-By"), await answer.json(content_type=None)


@pytest.mark.parametrize("way", WAYS)
async def test_served_vault_answers_reads(asking: ClientSession, node: Node, way: str) -> None:
    lv = node.vault.revision
    status, by, found = await get(asking, f"/v1/fenced//s/a{way}")
    assert (status, by) == (200, "vault")
    assert found["kv"].pop("mod_revision") == found["kv"].pop("create_revision")
    assert found == {"revision": lv, "answered_by": "vault", "kv": {"key": "/s/a", "value": "1", "version": 1}}
    assert await get(asking, f"/v1/fenced/%2Fs%2Fa{way}") == await get(asking, f"/v1/fenced//s/a{way}")
    status, _, found = await get(asking, f"/v1/fenced//s/none{way}")
    assert (status, found["code"]) == (404, "key-not-found")
    assert node.asked == []


async def test_state_changes_whenever_a_row_may_change(node: Node) -> None:
    """Rights are cached as long as it is the same object (`Authorizer.try_authenticate`)."""
    first = node.reads.permissions_state()
    assert first is not None
    assert node.reads.permissions_state() is first
    states = [first]
    for step in (lambda: node.write(DENY, "2"), node.release, node.apply):
        step()
        states.append(node.reads.permissions_state())
        assert states[-1] is not None
    assert states[0] is not states[1], "staged: from here on the change may be released"
    node.page.refuse()
    assert node.reads.permissions_state() is None


FENCED = [
    ("/s/a", 503, None, "fenced"),
    ("/e/a", 503, None, "fenced"),
    ("/r/a", 200, "quorum", "2"),
    ("/r/none", 404, None, "key-not-found"),
    (DENY, 200, "quorum", "yes"),
    (TTL, 200, "default", INFINITE_TTL.decode()),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("key", "status", "by", "said"), FENCED)
async def test_each_policy_of_a_fenced_node(
    asking: ClientSession, node: Node, way: str, key: str, status: int, by: str | None, said: str
) -> None:
    node.page.refuse()
    found = await get(asking, f"/v1/fenced/{key}{way}")
    assert found[:2] == (status, by)
    assert found[2].get("code", found[2].get("kv", {}).get("value")) == said
    if status == 200:
        assert (found[2]["answered_by"], found[2]["revision"]) == (by, 60 if by == "quorum" else 0)
    if status == 503:
        assert found[2]["retry"] is True
        assert "the node is fenced" in found[2]["detail"]


@pytest.mark.parametrize("way", WAYS)
async def test_unreachable_cluster_makes_refetch_retriable_and_deny_refuse(
    asking: ClientSession, node: Node, way: str
) -> None:
    node.page.refuse()
    node.cluster = None
    status, by, found = await get(asking, f"/v1/fenced//r/a{way}")
    assert (status, by, found["code"], found["retry"]) == (503, None, "fenced", True)
    assert "reading from the cluster failed: no leader" in found["detail"]
    status, by, found = await get(asking, f"/v1/fenced/{DENY}{way}")
    assert (status, by, found["code"], found["retry"]) == (403, None, "fenced-denied", False)
    assert "palisade.permissions" in found["detail"]
    assert {name: count for name, count in node.reads.ended.items() if count} == {"fenced": 1, "denied": 1}


async def test_default_that_is_not_text_is_returned_as_base64(asking: ClientSession, node: Node) -> None:
    node.page.refuse()
    _, _, found = await get(asking, "/v1/fenced//z/never-written")
    expected = {"key": "/z/never-written", "value_base64": "/yBzYWZl"}
    assert found["kv"] == expected | {"create_revision": 0, "mod_revision": 0, "version": 0}


@pytest.mark.parametrize("way", WAYS)
async def test_pending_change_is_waited_for(asking: ClientSession, node: Node, way: str) -> None:
    """The result is the change itself, once it is released: by the event, not by polling."""
    revision = node.write("/s/a", "2")
    asked = asyncio.ensure_future(get(asking, f"/v1/fenced//s/a{way}"))
    while not asked.done() and not node._moved._waiters:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert not asked.done()
    assert (await get(asking, f"/v1/fenced//s/b{way}"))[0] == 200
    node.release()
    status, by, found = await asked
    assert (status, by, found["kv"]["value"], found["revision"]) == (200, "vault", "2", revision)
    assert (await get(asking, f"/v1/fenced//s/a{way}"))[2]["kv"]["value"] == "2", "released, and not applied"


async def test_read_of_a_change_that_is_never_released_is_refused(asking: ClientSession, node: Node) -> None:
    node.reads._reader._wait_s = 0.01  # type: ignore[union-attr]
    node.write("/s/a", "2")
    node.write("/r/a", "2")
    status, _, found = await get(asking, "/v1/fenced//s/a")
    assert (status, found["code"], found["retry"]) == (503, "read-pending", True)
    status, by, found = await get(asking, "/v1/fenced//r/a")
    assert (status, by, found["kv"]["value"]) == (200, "quorum", "2")


# Not older than a revision


async def test_read_waits_until_the_vault_is_at_a_revision(asking: ClientSession, node: Node) -> None:
    node.driver.do(Put(b"/e/a", b"2"))
    wanted = node.driver.store.revision
    assert (await get(asking, "/v1/fenced//e/a"))[2]["kv"]["value"] == "1"
    asked = asyncio.ensure_future(get(asking, f"/v1/fenced//e/a?revision={wanted}&timeout_ms=9000"))
    while not asked.done() and not node._moved._waiters:  # noqa: ASYNC110
        await asyncio.sleep(0)
    node.apply()
    assert (await asked)[2]["kv"]["value"] == "2"
    status, _, found = await get(asking, f"/v1/fenced//e/a?revision={wanted + 1}&timeout_ms=0")
    assert (status, found["code"], found["retry"]) == (503, "not-reached", True)
    assert f"at revision {wanted}" in found["detail"]


@pytest.mark.parametrize(
    "query",
    ["timeout_ms=5", "revision=1&timeout_ms=60001", "revision=1&timeout_ms=-1", "revision=x", "policy=refetch",
     "revision=1&revision=2", "limit=1"],
)  # fmt: skip
async def test_invalid_read_of_a_key_is_refused(asking: ClientSession, query: str) -> None:
    status, _, found = await get(asking, f"/v1/fenced//s/a?{query}")
    assert (status, found["code"]) == (400, "bad-request")


# Ranges


async def test_prefix_is_read_at_one_revision(asking: ClientSession, node: Node) -> None:
    status, by, found = await get(asking, "/v1/fenced?prefix=/s/")
    assert (status, by, found["answered_by"], found["more"]) == (200, "vault", "vault", False)
    assert [kv["key"] for kv in found["kvs"]] == ["/s/a", "/s/b", "/s/c"]
    assert found["revision"] == node.vault.revision
    status, _, found = await get(asking, "/v1/fenced?prefix=/s/&limit=2&keys_only=true")
    assert (found["more"], [(kv["key"], kv["value"]) for kv in found["kvs"]]) == (True, [("/s/a", ""), ("/s/b", "")])
    _, _, found = await get(asking, "/v1/fenced?key=/s/b%00&range_end=/s0&limit=2")
    assert (found["more"], [kv["key"] for kv in found["kvs"]]) == (False, ["/s/c"])
    assert len((await get(asking, "/v1/fenced?prefix="))[2]["kvs"]) >= len(KEYS)
    assert [kv["key"] for kv in (await get(asking, "/v1/fenced?key=/s/b"))[2]["kvs"]] == ["/s/b"]
    assert (await get(asking, "/v1/fenced?prefix=/none/"))[2]["kvs"] == []


async def test_large_range_is_of_one_revision_under_writes(asking: ClientSession, node: Node) -> None:
    """Other tasks get turns while it is read and written out; their changes are not in it."""
    for number in range(3000):
        node.driver.do(Put(b"/s/%06d" % number, b"old"))
    node.apply()
    node.release()
    before = node.vault.revision
    asked = asyncio.ensure_future(node.reads.range(b"/s/0", b"/s/1", 0))
    await asyncio.sleep(0)
    for number in range(3000):
        node.driver.do(Put(b"/s/%06d" % number, b"new"))
    node.apply()
    node.release()
    assert not asked.done()
    rows = await asked
    assert (rows.revision, len(rows.items), {item.value for item in rows.items}) == (before, 3000, {b"old"})
    _, _, found = await get(asking, "/v1/fenced?key=/s/0&range_end=/s/1")
    assert (len(found["kvs"]), {kv["value"] for kv in found["kvs"]}) == (3000, {"new"})


async def test_fenced_node_answers_ranges_by_policy(asking: ClientSession, node: Node) -> None:
    """A range in one region whose policy is to ask the cluster is read from the cluster; a default applies to one key,
    and a range over several regions fails closed."""
    node.page.refuse()
    status, by, found = await get(asking, "/v1/fenced?prefix=/r/&limit=7")
    assert (status, by, found["revision"], [kv["value"] for kv in found["kvs"]]) == (200, "quorum", 60, ["2"])
    assert node.asked == [(b"/r/", b"/r0", 7)]
    for query in ("prefix=/s/", "prefix=/z/", "prefix=", "key=/r/a&range_end=/s/b"):
        status, _, found = await get(asking, f"/v1/fenced?{query}")
        assert (status, found["code"]) == (503, "fenced"), query


@pytest.mark.parametrize("query", ["", "limit=3", "prefix=/s/&key=a", "prefix=/s/&limit=-1", "prefix=/s/&policy=deny"])
async def test_invalid_read_of_a_range_is_refused(asking: ClientSession, query: str) -> None:
    status, _, found = await get(asking, f"/v1/fenced?{query}")
    assert (status, found["code"]) == (400, "bad-request")


# The command line


async def palisade(http: ClientSession, *words: str) -> Result:
    """In a thread with an event loop of its own."""
    at = str(http._base_url).removeprefix("http://").rstrip("/")
    return await asyncio.to_thread(CliRunner().invoke, main, [*words, "--at", at])


async def test_commands_read_the_vault_of_the_node_that_is_named(asking: ClientSession, node: Node) -> None:
    assert (await palisade(asking, "get", "/s/a")).output == "1"
    assert json.loads((await palisade(asking, "get", "/s/a", "--json")).output)["answered_by"] == "vault"
    found = await palisade(asking, "range", "/s/", "--prefix", "--limit", "2")
    assert [line.split("\t")[0] for line in found.stdout.splitlines() if line.startswith("/")] == ["/s/a", "/s/b"]
    found = await palisade(asking, "range", "", "--from-key", "--json")
    assert len(json.loads(found.stdout)["kvs"]) >= len(KEYS)
    assert (await palisade(asking, "get", "/s/none")).exit_code == 1
    node.page.refuse()
    found = await palisade(asking, "get", "/s/a")
    assert (found.exit_code, "the node is fenced" in found.stderr) == (3, True)
    node.cluster = None
    assert (await palisade(asking, "get", DENY)).exit_code == 1
    for words in (["get", "a", "--revision", "3"], ["range", "a", "--order", "ascend"], ["range", "a", "--count-only"]):
        found = await palisade(asking, *words)
        assert (found.exit_code, "one node" in found.stderr) == (2, True)


# Without a vault


async def test_reads_before_open_and_after_close_are_refused(asking: ClientSession, node: Node) -> None:
    node.reads.close()
    for path in ("/v1/fenced//r/a", "/v1/fenced//r/a?revision=1", "/v1/fenced?prefix=/r/"):
        status, _, found = await get(asking, path)
        assert (status, found["code"], found["retry"]) == (503, "fenced", True)
    with pytest.raises(Fenced):
        await FencedReads().read(b"a")


async def test_refused_read_of_a_node_without_a_leader_has_that_reason(asking: ClientSession, node: Node) -> None:
    """Without a majority, it had "it has no lease yet" as the only reason."""
    node.page.refuse()
    for path in ("/v1/fenced//s/a", "/v1/fenced?prefix=/s/"):
        assert WITHOUT_LEADER not in (await get(asking, path))[2].get("detail", "")
    node.leaderless = True
    for path in ("/v1/fenced//s/a", "/v1/fenced?prefix=/s/"):
        status, _, found = await get(asking, path)
        assert (status, found["code"]) == (503, "fenced")
        assert found["detail"].endswith(f". {WITHOUT_LEADER}")


async def test_member_asks_its_own_cluster(service: KeyValues, group: FakeGroup) -> None:
    await service.write(Put(b"/r/a", b"1"), caller=UNRESTRICTED)
    written = await service.write(Put(b"/r/b", b"2"), caller=UNRESTRICTED)
    ask = asks_own_cluster(partial(service.range, caller=UNRESTRICTED))
    assert await ask(b"/r/a", b"/r/a\0", 1) == Rows(written.revision, (Item(b"/r/a", b"1", 2, 2, 1, 0),))
    assert (await ask(b"/r/", b"/r0", 1)).more
    assert len((await ask(b"", None, 0)).items) == 2
    group.lease_valid = group.majority = False
    with pytest.raises(Unavailable):
        await ask(b"/r/a", b"/r/a\0", 1)


async def test_follower_asks_a_member(service: KeyValues, http: ClientSession) -> None:
    """Over HTTP, with the real responses of a member."""

    async def ask_member(method: str, path: str, body: Any) -> Any:
        async with http.request(method, path, json=body) as answer:
            return await answer.json()

    await service.write(Put(b"/r/a", b"\xff"), caller=UNRESTRICTED)
    written = await service.write(Put(b"/r/b", b"2"), caller=UNRESTRICTED)
    ask = asks_a_member(ask_member)
    assert await ask(b"/r/a", b"/r/a\0", 1) == Rows(written.revision, (Item(b"/r/a", b"\xff", 2, 2, 1, 0),))
    assert [item.key for item in (await ask(b"", None, 0)).items] == [b"/r/a", b"/r/b"]
    assert (await ask(b"/r/", b"/r0", 1)).more


@pytest.mark.parametrize(
    "answer",
    [None, {}, [], {"revision": 1, "more": False}, {"revision": "1", "more": False, "kvs": []},
     {"revision": 1, "more": False, "kvs": [{"key": "a"}]},
     {"revision": 1, "more": False, "kvs": [{"key": 1, "value": "", "create_revision": 1, "mod_revision": 1,
                                            "version": 1}]},
     {"revision": 1, "more": False, "kvs": [{"key": "a", "value": "", "create_revision": 1, "mod_revision": "1",
                                            "version": 1}]}],
)  # fmt: skip
async def test_invalid_response_of_a_member_is_refused(answer: Any) -> None:
    async def ask_member(*_: Any) -> Any:
        return answer

    with pytest.raises(Unavailable, match="unexpected response"):
        await asks_a_member(ask_member)(b"a", b"b", 0)
