"""A node whose cluster does not answer refuses requests over HTTP in time, with the reason."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession

from palisade.api.http.authorization_header import PATIENCE_SHARE, patience_of
from palisade.base.http_request import TIMEOUT_HEADER
from palisade.catalog import keys
from palisade.service.authorization.rights import PermissionRow
from tests.support.permission_world import FenceableRows, as_user


@pytest.mark.parametrize("readable", [(), (keys.CREDENTIALS,)], ids=["nothing", "credentials"])
async def test_node_that_cannot_read_the_permissions_answers_before_http_clients_give_up(
    http: ClientSession, rows: FenceableRows, monkeypatch: pytest.MonkeyPatch, readable: tuple[bytes, ...]
) -> None:
    """Two of three members were frozen: `palisade get --at` wrote "no node answers" of the one that ran (issue 16)."""
    read = rows.read

    async def only(key: bytes) -> PermissionRow | None:
        return await read(key) if key.startswith(readable) else await asyncio.sleep(3600)

    rows.fenced = True
    monkeypatch.setattr(rows, "read", only)
    monkeypatch.setattr("palisade.api.http.authorization_header.PATIENCE_S", 0.05)
    for path in ("/v1/kv?prefix=/a/", "/v1/fenced/%2Fa%2Fk"):
        async with asyncio.timeout(5), http.get(path, headers=as_user("alice")) as response:
            assert response.status == 503
            assert (await response.json())["code"] == "permissions-unknown"


@pytest.mark.parametrize("timeout_ms", ["400", "100"])
async def test_node_that_cannot_read_the_permissions_answers_within_the_time_of_the_client(
    http: ClientSession, rows: FenceableRows, monkeypatch: pytest.MonkeyPatch, timeout_ms: str
) -> None:
    """With `--timeout 2` the command printed "no node answers" for a node that refused after 3 s (issue 16)."""

    async def never(_: bytes) -> PermissionRow | None:
        return await asyncio.sleep(3600)

    rows.fenced = True
    monkeypatch.setattr(rows, "read", never)
    headers = {**as_user("alice"), TIMEOUT_HEADER: timeout_ms}
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(2.5), http.get("/v1/status", headers=headers) as response:
        assert (await response.json())["code"] == "permissions-unknown"
    assert asyncio.get_running_loop().time() - began >= int(timeout_ms) / 1000 * PATIENCE_SHARE


@pytest.mark.parametrize(
    ("timeout_ms", "patience_s"),
    [(None, 3.0), ("2000", 1.0), ("60000", 3.0), ("0", 0.0), ("-1", 3.0), ("nan", 3.0), ("", 3.0), ("9" * 5000, 3.0)],
)
def test_patience_is_half_of_the_time_of_the_client(timeout_ms: str | None, patience_s: float) -> None:
    assert patience_of(timeout_ms) == patience_s
