"""Regions are read and changed over HTTP, the stream and the command line, at members and followers (issue 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner, Result

from palisade.api.stream.server import StreamServer
from palisade.cli.main import main
from palisade.client import Client
from palisade.metastore.errors import InvalidRequest, KeyNotFound
from palisade.service.key_values import KeyValues
from palisade.service.regions import FencedRegions, RegionAdmin
from palisade.vault.errors import Fenced
from palisade.vault.regions import Mode, Policy, Region, pack_region
from tests.node.fencing.test_fenced_http import Node

CONFIG = Region("config", b"/config/", Mode.STRICT, Policy.SAFE_DEFAULT, b"none")


async def patched(http: ClientSession, body: Any, name: str = "config") -> tuple[int, dict[str, Any]]:
    async with http.patch(f"/v1/regions/{name}", json=body) as answer:
        return answer.status, await answer.json(content_type=None)


async def test_region_change_keeps_other_fields(service: KeyValues, http: ClientSession) -> None:
    """Setting the policy with PUT would make an eventual region strict again."""
    book = RegionAdmin(service)
    await book.put(Region("config", b"/config/", Mode.EVENTUAL, Policy.SAFE_DEFAULT, b"none"))
    status, found = await patched(http, {"default": "nothing"})
    assert (status, found["region"]["default"], found["region"]["mode"]) == (200, "nothing", "eventual")
    status, found = await patched(http, {"policy": "refetch"})
    shape = {"name": "config", "prefix": "/config/", "mode": "eventual", "policy": "refetch", "built_in": False}
    assert (status, found["region"]) == (200, shape), "the default goes with its policy"
    assert await book.get("config") == Region("config", b"/config/", Mode.EVENTUAL, Policy.REFETCH)
    assert (await book.view())["revision"] == found["revision"]
    assert (await patched(http, {"mode": "strict", "prefix": "/c/"}))[0] == 200
    assert await book.get("config") == Region("config", b"/c/", Mode.STRICT, Policy.REFETCH)


@pytest.mark.parametrize(
    ("body", "code"),
    [({}, "bad-request"), ({"policy": "perhaps"}, "bad-request"), ({"name": "x"}, "bad-request"), ([], "bad-request"),
     ({"default": "x"}, "invalid-request"), ({"prefix": "palisade/x"}, "invalid-request"),
     ({"prefix": "/other/"}, "invalid-request")],
)  # fmt: skip
async def test_invalid_region_change_is_refused(service: KeyValues, http: ClientSession, body: Any, code: str) -> None:
    book, plain = RegionAdmin(service), Region("config", b"/config/", Mode.STRICT, Policy.DENY)
    await book.put(plain)
    await book.put(Region("other", b"/other/", Mode.STRICT, Policy.DENY))
    status, found = await patched(http, body)
    assert (status, found["code"]) == (400, code)
    assert await book.get("config") == plain


async def test_missing_or_built_in_region_is_not_changed(http: ClientSession) -> None:
    status, found = await patched(http, {"policy": "deny"}, "none")
    assert (status, found["code"]) == (404, "key-not-found")
    status, found = await patched(http, {"policy": "fail_closed"}, "palisade.permissions")
    assert (status, found["code"]) == (400, "invalid-request")


async def test_safe_default_needs_a_default(http: ClientSession, service: KeyValues) -> None:
    """It was accepted without one, and reads of a node without a lease returned an empty value."""
    body = {"prefix": "/x/", "policy": "safe_default"}
    async with http.put("/v1/regions/x", json=body) as response:
        refused = await response.json(content_type=None)
    assert response.status == 400
    assert refused["detail"].startswith("the body: the policy safe_default needs default")
    async with http.put("/v1/regions/x", json={"prefix": "/x/"}) as response:
        assert response.status == 200
    status, found = await patched(http, {"policy": "safe_default"}, "x")
    assert (status, found["code"]) == (400, "invalid-request")
    assert "the policy safe_default needs" in found["detail"]
    assert (await patched(http, {"policy": "safe_default", "default": ""}, "x"))[0] == 200
    assert (await patched(http, {"mode": "eventual", "policy": "safe_default"}, "x"))[0] == 200
    assert await RegionAdmin(service).get("x") == Region("x", b"/x/", Mode.EVENTUAL, Policy.SAFE_DEFAULT)


async def test_concurrent_region_changes_both_apply(service: KeyValues, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change that lost the race reads again."""
    book = RegionAdmin(service)
    await book.put(CONFIG)
    stored, overtaken = RegionAdmin._stored, []

    async def overtake(self: RegionAdmin, name: str) -> tuple[Region, int]:
        found = await stored(self, name)
        if not overtaken:
            overtaken.append(name)
            await RegionAdmin(service).change(name, {"prefix": b"/c/"})
        return found

    monkeypatch.setattr(RegionAdmin, "_stored", overtake)
    await book.change("config", {"default": b"other"})
    assert await book.get("config") == Region("config", b"/c/", Mode.STRICT, Policy.SAFE_DEFAULT, b"other")


async def test_stream_and_command_line_change_regions(service: KeyValues, client: Client, stream: StreamServer) -> None:
    await client.region_set("config", pack_region(CONFIG))
    assert await client.region_change("config", {"mode": "eventual", "default": b"\xff"}) == service.store.revision
    book = RegionAdmin(service)
    assert await book.get("config") == Region("config", b"/config/", Mode.EVENTUAL, Policy.SAFE_DEFAULT, b"\xff")
    for wrong in ({}, {"mode": b"strict"}, {"name": "x"}, {"policy": "perhaps"}, None, {"prefix": "text"}):
        with pytest.raises(InvalidRequest):
            await client.region_change("config", wrong)  # type: ignore[arg-type]
    with pytest.raises(KeyNotFound):
        await client.region_change("none", {"mode": "strict"})

    def palisade(*words: str) -> Result:
        return CliRunner().invoke(main, ["region", "change", "config", *words])

    at = f"--endpoints=127.0.0.1:{stream.port}"
    found = await asyncio.to_thread(palisade, "--policy", "deny", at)
    assert (found.exit_code, found.output.startswith("region config: policy deny; revision ")) == (0, True), (
        found.output
    )
    assert (await book.get("config")).policy is Policy.DENY
    assert (await asyncio.to_thread(palisade, at)).exit_code == 2


async def test_follower_reads_regions_through_its_fence() -> None:
    node = Node()
    regions = FencedRegions(node.reads)
    assert (await regions.get("r")).policy is Policy.REFETCH
    assert (await regions.get("palisade.ttl")).built_in
    with pytest.raises(KeyNotFound):
        await regions.get("none")
    node.page.refuse()
    with pytest.raises(Fenced):
        await regions.view()
