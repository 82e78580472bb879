"""docs/metrics.md names every family that a node serves, and no other, with its type, labels and values (issue 15).

`node/test_standalone.py` and `test_journal.py` compare it with the other kinds of nodes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from palisade.wire.credentials import Password, Token, header_of
from tests.support.metrics_page import differences
from tests.support.processes import Cluster, FollowerProcess, NodeProcess, exposition_at, until

pytestmark = pytest.mark.e2e

SECRETS = {"authorization": "on", "join_token": "token-to-join", "metrics_token": "token-of-a-scraper"}
OF_MEMBERS = ("palisade_joins_rejected_total", "palisade_nodes_dropped_total")
LATE = ("palisade_broker_first_sync_seconds", "palisade_logical_nodes")
"""Served once the node has read something."""


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[tuple[NodeProcess, NodeProcess]]:
    """A member beside another one, and a follower, all with authorization and segments."""
    config, password = tmp_path / "config.toml", tmp_path / "root-password"
    config.write_text("segments = true\n")
    password.write_text("password of root\n")
    options = SECRETS | {"config": str(config)}
    cluster = Cluster(tmp_path, 2, **options, root_password_file=str(password))
    follower = FollowerProcess(tmp_path, "f1", join=cluster.nodes[0].http, **options)
    follower.options["swim"] = follower.peer
    cluster.start()
    try:
        await cluster.ready()
        follower.start()
        await until(follower.ready, "the follower being ready")
        yield cluster.nodes[0], follower
    finally:
        follower.kill()
        cluster.kill()


async def scraped(node: NodeProcess) -> str:
    """As by Prometheus, once every family can be there."""
    text = ""

    async def is_complete() -> bool:
        nonlocal text
        text = await exposition_at(node.http, Token(SECRETS["metrics_token"]))
        return all(name in text for name in LATE)

    await until(is_complete, f"{node.id} serving {', '.join(LATE)}")
    return text


async def refused(node: NodeProcess) -> None:
    """Counts of logins and refusals have labels once they are not 0."""
    headers = header_of(Password("root", "another password"))
    async with aiohttp.ClientSession(headers=headers) as http, http.get(f"http://{node.http}/v1/status") as answer:
        assert answer.status == 401


async def test_page_has_the_metrics_of_members_and_followers(nodes: tuple[NodeProcess, NodeProcess]) -> None:
    member, follower = nodes
    await refused(member)
    assert differences("member", await scraped(member)) == []
    assert differences("--follow", await scraped(follower), absent=OF_MEMBERS) == []
