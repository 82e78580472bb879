"""What is around each fuzzer sees it if the state has changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fuzz_ground import FUZZ, Ground, watched

pytestmark = pytest.mark.e2e

CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/put", {"key": "b", "value": "1"}),
    ("PUT", "/v1/regions/other", {"prefix": "other/"}),
    (
        "POST",
        "/v1/catalog/operations/revoke?wait_s=30",
        {"subject": "user:kept", "privilege": "read", "prefix": "kept/"},
    ),
    ("PUT", "/v1/catalog/databases/other?wait_s=30", {}),
)


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_a_change_is_seen(ground: Ground, method: str, path: str, body: Any) -> None:
    with pytest.raises(AssertionError, match="palisade/" if path != "/v1/put" else "'1'"):
        await watched_change(ground, method, path, body)


async def watched_change(ground: Ground, method: str, path: str, body: Any) -> None:
    async with watched(ground.member, ground.member):
        answer = await ground.member.ask(method, path, body, timeout_s=60)
        if answer is None or answer["http_status"] != 200:
            pytest.fail(f"{path}: {answer}")


async def test_write_below_the_prefix_of_fuzzers_is_no_change(ground: Ground) -> None:
    async with watched(ground.member, ground.member):
        await ground.member.put(f"{FUZZ}k", "1")
