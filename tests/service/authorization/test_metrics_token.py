"""A scraper of metrics has a token of its own: it opens /metrics, and nothing else (issue 16)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from palisade.base.errors import ConfigError
from palisade.service.authorization.authorizer import Authorizer
from tests.node.test_config import load
from tests.support.permission_world import PROOF, FenceableRows

TOKEN = "metrics-only-token"


@pytest.fixture
async def authorizer(rows: FenceableRows) -> AsyncIterator[Authorizer]:
    found = Authorizer(rows, PROOF, metrics_token=TOKEN)
    yield found
    found.close()


async def status(http: ClientSession, path: str, header: str | None, method: str = "GET") -> int:
    headers = {} if header is None else {"Authorization": header}
    async with http.request(method, path, headers=headers) as answer:
        return answer.status


async def test_metrics_token_permits_metrics_only(http: ClientSession) -> None:
    assert await status(http, "/metrics", f"Bearer {TOKEN}") == 200
    for path in ("/v1/status", "/v1/kv/a", "/v1/fencing", "/v1/members"):
        assert await status(http, path, f"Bearer {TOKEN}") == 401
    assert await status(http, "/metrics", f"Bearer {TOKEN}", "POST") != 200
    for wrong in (None, TOKEN, f"Bearer {TOKEN}x", "Bearer ", "Bearer \u00e9"):
        assert await status(http, "/metrics", wrong) == 401


def test_metrics_token_must_be_a_token() -> None:
    assert load(metrics_token=TOKEN).metrics_token == TOKEN
    for wrong in ("short", "with spaces in it", "x" * 257):
        with pytest.raises(ConfigError, match="metrics-token"):
            load(metrics_token=wrong)
    assert TOKEN not in repr(load(metrics_token=TOKEN))
