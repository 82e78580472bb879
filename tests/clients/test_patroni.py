"""Patroni runs PostgreSQL with its leader lock in a cluster, over etcd's JSON API: bootstrap, switchover, failover."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.patroni_node import PatroniNode
from tests.clients.requirement import require_module, require_postgres
from tests.support.processes import Cluster, until

pytestmark = pytest.mark.e2e

WITHIN_S = 90.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: the path of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="patroni-") as name:
        yield Path(name)


@pytest.fixture
def nodes(cluster: Cluster, folder: Path) -> Iterator[tuple[PatroniNode, PatroniNode]]:
    for module in ("patroni", "etcd", "psycopg"):
        require_module(module)
    programs, etcd = require_postgres(), [node.http for node in cluster.nodes]
    first, second = (PatroniNode(folder, name, programs, etcd) for name in ("pg1", "pg2"))
    try:
        yield first, second
    finally:
        first.kill()
        second.kill()


async def execute(node: PatroniNode, statement: str) -> list[tuple[object, ...]]:
    import psycopg

    address = f"host=127.0.0.1 port={node.postgres} user=postgres dbname=postgres"
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        cursor = await connection.execute(statement)
        return await cursor.fetchall() if cursor.description else []


async def test_patroni_switches_over_and_fails_over(cluster: Cluster, nodes: tuple[PatroniNode, PatroniNode]) -> None:
    first, second = nodes
    first.start()
    await until(first.is_primary, f"pg1 as primary: {first.log_file}", WITHIN_S)
    second.start()
    await until(second.is_streaming, f"pg2 as replica: {second.log_file}", WITHIN_S)
    await execute(first, "CREATE TABLE steps (step text)")
    await execute(first, "INSERT INTO steps VALUES ('before the switchover')")

    status, text = await first.ask_switchover(second)
    assert status == 200, text
    await until(second.is_primary, "pg2 as primary after the switchover", WITHIN_S)
    await until(first.is_streaming, "pg1 as replica after the switchover", WITHIN_S)
    await execute(second, "INSERT INTO steps VALUES ('after the switchover')")
    await until(lambda: rows_of(first, 2), "the row at pg1", WITHIN_S)

    (await cluster.leader()).kill()
    second.kill()
    await until(first.is_primary, "pg1 as primary after the failover", WITHIN_S)
    await execute(first, "INSERT INTO steps VALUES ('after the failover')")
    found = [row[0] for row in await execute(first, "SELECT step FROM steps")]
    assert found == ["before the switchover", "after the switchover", "after the failover"]


async def rows_of(node: PatroniNode, count: int) -> bool:
    return len(await execute(node, "SELECT step FROM steps")) == count
