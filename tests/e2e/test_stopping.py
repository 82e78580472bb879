"""Orderly stops, and refusals at start: exit codes and one clear line each (issue 2, "Bad input")."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess

pytestmark = pytest.mark.e2e

REFUSED = 2
POLITE_GAP_S = 0.85
"""A transfer of leadership costs a few round trips, an election at least 0.9 s, also on an idle machine."""


@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_stopped_leader_hands_over_and_exits_with_0(cluster: Cluster, number: int) -> None:
    async with Load(cluster.endpoints, f"signal{number}") as load:
        await load.writes(100)
        leader = await cluster.leader()
        began = time.monotonic()
        leader.interrupt(number)
        assert await leader.ended(within_s=15) == 0
        await load.writes(100)
        assert load.record.gap_s(began, time.monotonic()) < POLITE_GAP_S
        leader.start()
        await cluster.ready()
        record = await load.stop()
    assert "Traceback" not in leader.log()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


async def test_node_without_majority_stops_within_seconds(cluster: Cluster) -> None:
    leader, (one, other) = await cluster.leader(), await cluster.followers()
    one.pause()
    other.kill()
    leader.interrupt()
    assert await leader.ended(within_s=15) == 0
    one.resume()


async def refusal_of(node: NodeProcess) -> str:
    """The one line of its output when it refuses to start."""
    node.start()
    assert await node.ended() == REFUSED
    (line,) = node.log().strip().splitlines()
    assert line.startswith("palisade node: "), line
    return line


@pytest.fixture
def alone(new_cluster: Callable[..., Cluster]) -> NodeProcess:
    return new_cluster(size=1).nodes[0]


@pytest.mark.parametrize("listener", ["http", "peer", "stream"])
async def test_port_in_use_is_refused_naming_its_process(alone: NodeProcess, listener: str) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        host, _, port = getattr(alone, listener).rpartition(":")
        other.bind((host, int(port)))
        other.listen(1)
        line = await refusal_of(alone)
    assert f"port {port} (--{listener}) is in use by process {os.getpid()}" in line
    assert not alone.data_dir.exists()


async def test_data_folder_in_use_by_another_process_is_refused(alone: NodeProcess, tmp_path: Path) -> None:
    alone.start()
    await alone.logged("serving: node=")
    second = NodeProcess(tmp_path, alone.id)
    second.data_dir = alone.data_dir
    assert "in use by another process" in await refusal_of(second)
    assert await alone.stop() == 0


async def test_data_folder_of_another_cluster_or_node_is_refused(alone: NodeProcess) -> None:
    alone.start()
    await alone.logged("serving: node=")
    assert await alone.stop() == 0
    alone.options = {}
    alone.cluster = "other"
    assert "belongs to cluster 'e2e', not to 'other'" in await refusal_of(alone)
    alone.cluster, alone.id = "e2e", "n9"
    assert "belongs to node 'n1', not to 'n9'" in await refusal_of(alone)


async def test_folder_with_other_content_is_refused_and_unchanged(alone: NodeProcess) -> None:
    alone.data_dir.mkdir()
    (alone.data_dir / "thesis.tex").write_text("x")
    assert "thesis.tex" in await refusal_of(alone)
    assert [path.name for path in alone.data_dir.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("place", ["folder", "raft", "store"])
async def test_unusable_data_folder_is_refused(alone: NodeProcess, place: str) -> None:
    """A file in place of a folder: root may write everywhere, so permissions alone would not suffice."""
    path = alone.data_dir if place == "folder" else alone.data_dir / place
    if place != "folder":
        alone.start()
        await alone.logged("serving: node=")
        assert await alone.stop() == 0
        (alone.data_dir / place).rename(alone.data_dir.parent / "moved")
    path.write_text("x")
    assert str(path) in await refusal_of(alone)
