"""A node whose cluster does not answer refuses requests over HTTP in time, with the reason."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession

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
