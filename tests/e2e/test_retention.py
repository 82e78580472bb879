"""Segments past their TTL on real nodes: removed everywhere, restored, kept while the node is fenced (issue 4,
P6)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palisade.segments.retention import end_ms
from palisade.segments.segment_store import file_of
from palisade.segments.verification import REMEMBERED
from tests.e2e.test_segment_copies import DAYS, contents, run, write_catalog, write_origin
from tests.support.fencing_cluster import lease, serving
from tests.support.processes import Cluster, FollowerProcess, NodeProcess, palisade, until
from tests.support.segment_names import name

pytestmark = pytest.mark.e2e

DAY_MS = 86_400_000
OPTIONS = ("segments_origin", "segments_look_s", "segments_trash_s")
FIRST_DAY = name(1)
RULE = "/v1/catalog/ttl/demo.flights?wait_s=30"
RULE_S, LEASE_S = 6.0, 10.0
"""Until the first day expires. Three times what a node needs to read a rule and be paused, and three leases."""


def files_of(node: NodeProcess) -> dict[str, bytes]:
    """Below the folder of its segments, including the trash; read again if a file is moved meanwhile."""
    folder = node.data_dir / "segments"
    while True:
        found = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*")}
        found = {name: file for name, file in found.items() if file.is_file() and not name.endswith(REMEMBERED)}
        try:
            return {name: file.read_bytes() for name, file in found.items()}
        except FileNotFoundError:
            continue


@pytest.fixture
async def keepers(
    new_cluster: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Cluster, dict[str, bytes]]:
    """Three members that have all segments, and the names of those."""
    monkeypatch.setenv("PALISADE_SEGMENTS", "true")
    origin = tmp_path / "origin"
    write_origin(origin, rows=3)
    cluster = new_cluster(**dict(zip(OPTIONS, (str(origin), "0.2", "1"), strict=True)))
    cluster.start()
    await cluster.ready()
    await serving(cluster.nodes)
    await write_catalog(cluster, origin)
    await run(cluster, "assign", "--replicas", "3")
    whole = contents(origin)
    await until(lambda: all(files_of(node) == whole for node in cluster.nodes), "all nodes having all segments")
    await answered(cluster.nodes[0], "PUT", "/v1/catalog/databases/demo?wait_s=30")
    return cluster, whole


async def answered(node: NodeProcess, method: str, path: str, body: Any = None) -> None:
    answer = await node.ask(method, path, body, timeout_s=60)
    assert answer is not None
    assert answer["http_status"] == 200, answer


async def catalog(cluster: Cluster, *arguments: str) -> None:
    code, _, err = await palisade("catalog", *arguments, "--endpoints", ",".join(cluster.endpoints))
    assert code == 0, err


async def segments_of(node: NodeProcess) -> dict[str, Any]:
    answer = await node.get("/v1/segments/copies")
    assert answer is not None, node.id
    return answer


def ttl_ms_that_ends_in(seconds: float) -> int:
    """A TTL that expires the first day only; all others are younger."""
    return int((time.time() + seconds) * 1000) - end_ms(FIRST_DAY)


async def test_expired_segments_are_removed_on_every_node_and_restored_without_the_rule(
    keepers: tuple[Cluster, dict[str, bytes]], tmp_path: Path
) -> None:
    """Members and a follower. The rule is removed by `unset-ttl`, and with its database."""
    cluster, whole = keepers
    own = {"join": cluster.nodes[0].http, **{name: cluster.options[name] for name in OPTIONS}}
    follower = FollowerProcess(tmp_path, "f1", **own)
    nodes = [*cluster.nodes, follower]
    try:
        follower.start()
        await serving([follower])
        await run(cluster, "assign", "--replicas", "4")
        for set_at, ends_by in (("demo.flights", ("unset-ttl", "demo.flights")), ("demo", ("drop-database", "demo"))):
            await until(lambda: all(files_of(node) == whole for node in nodes), "all segments on all nodes")
            await catalog(cluster, "set-ttl", set_at, str(DAY_MS))
            await until(lambda: not any(map(files_of, nodes)), "no segment on any node")
            rows = (await run(cluster, "nodes"))["nodes"]
            assert [(row["expired"], row["trashed"], row["missing"]) for row in rows] == [(len(DAYS), 0, 0)] * 4
            await catalog(cluster, *ends_by)
        await until(lambda: all(files_of(node) == whole for node in nodes), "all segments on all nodes again")
        for node in nodes:
            found = await segments_of(node)
            assert (found["purged"], found["evicted"], found["retention"]["works"]) == (2 * len(DAYS), 0, True)
    finally:
        follower.kill()


async def test_paused_node_deletes_nothing_by_a_removed_rule(
    keepers: tuple[Cluster, dict[str, bytes]],
) -> None:
    """F11: it knew the rule, and the first day expires during its pause."""
    cluster, whole = keepers
    victim, other = await cluster.followers()
    await answered(other, "PUT", RULE, {"ttl_ms": ttl_ms_that_ends_in(RULE_S)})
    passes = (await segments_of(victim))["retention"]["passes"]

    async def has_looked() -> bool:
        return bool((await segments_of(victim))["retention"]["passes"] > passes + 1)

    await until(has_looked, "the node looking at the rule")
    victim.pause()
    ends_s = time.time() + RULE_S
    await answered(other, "DELETE", RULE)
    await until(lambda: time.time() > ends_s, "the first day being past its time by the old rule")
    victim.resume()
    await serving([victim])
    passes = (await segments_of(victim))["retention"]["passes"]
    await until(has_looked, "the node looking again")
    assert files_of(victim) == whole
    assert (await segments_of(victim))["trashings"] == 0


async def test_fenced_node_keeps_expired_segments_until_it_serves_again(
    keepers: tuple[Cluster, dict[str, bytes]],
) -> None:
    cluster, whole = keepers
    alone, *others = cluster.nodes
    ends_s = time.time() + LEASE_S
    await answered(alone, "PUT", RULE, {"ttl_ms": ttl_ms_that_ends_in(LEASE_S)})
    for node in others:
        node.pause()

    async def is_fenced() -> bool:
        return not (await lease(alone)).get("serves")

    await until(is_fenced, "the node without a majority being fenced")
    assert time.time() < ends_s, "the machine is too slow for this test"
    await until(lambda: time.time() > ends_s + 0.5, "the first day being past its time")
    refused = (await segments_of(alone))["retention"]["refused"]

    async def has_been_refused() -> bool:
        return bool((await segments_of(alone))["retention"]["refused"] > refused + 3)

    await until(has_been_refused, "looks that the fence refuses")
    assert files_of(alone) == whole
    for node in others:
        node.resume()
    gone = {name: content for name, content in whole.items() if name != file_of(FIRST_DAY)}
    await until(lambda: all(files_of(node) == gone for node in cluster.nodes), "the first day being gone everywhere")
