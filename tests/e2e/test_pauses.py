"""Paused processes: SIGSTOP for longer than the election timeout, and absent majorities.

After the pause an old leader must not serve a read from its stale state (etcd #20418), and must follow the new one.
"""

from __future__ import annotations

import asyncio
import base64
import time
from contextlib import AsyncExitStack

import pytest

from palisade.cli.session import UNAVAILABLE
from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess, palisade, until
from tests.support.raw_http import RawHttp
from tests.support.reads import CounterReads

pytestmark = pytest.mark.e2e

RAW_BODY = b'{"key": "Y291bnRlcg=="}'
RAW_READ = b"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(RAW_BODY), RAW_BODY)
HALF = 30
DEADLINE_S = 5.0
"""Of a request without a deadline of its own: `node/config.py`."""


async def test_resumed_leader_serves_no_stale_read_and_follows(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "pause") as load, CounterReads(cluster.endpoints) as reads:
        for _ in range(2):
            await load.writes(100)
            await pause_and_replace(cluster, reads)
    assert reads.stale == []
    await check_record(load.record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


async def pause_and_replace(cluster: Cluster, reads: CounterReads) -> None:
    old = await cluster.leader()
    others = [node for node in cluster.nodes if node is not old]
    old.pause()
    new = await cluster.leader(others)
    writes = reads.writes
    await until(lambda: reads.writes >= writes + 20, "writes under the new leader")
    answered = reads.reads[old.stream]
    old.resume()
    await until(lambda: follows(old, new), "the old leader following")
    await until(lambda: reads.reads[old.stream] >= answered + 20, "reads through the old leader")


async def test_first_read_of_a_resumed_leader_is_not_stale(cluster: Cluster) -> None:
    """The first half of a request arrives before any message of the new leader, the second half after the new leader's
    writes. The node polls its sockets in order of arrival: so it sees these requests first, and complete."""
    old = await cluster.leader()
    others = await cluster.followers()
    assert await old.put("counter", "old")
    await cluster.equal_digests()
    async with AsyncExitStack() as stack:
        port = int(old.http.rpartition(":")[2])
        connections = [await stack.enter_async_context(RawHttp(port)) for _ in range(20)]
        old.pause()
        for connection in connections:
            connection.send(RAW_READ[:HALF])
        new = await cluster.leader(others)
        assert await new.put("counter", "new")
        for connection in connections:
            connection.send(RAW_READ[HALF:])
        old.resume()
        answers = [await connection.json() for connection in connections]
    shown = {base64.b64decode(answer["kvs"][0]["value"]) for status, answer in answers if status == 200}
    assert shown <= {b"new"}


@pytest.mark.alone
async def test_read_does_not_wait_for_a_replaced_leader(cluster: Cluster) -> None:
    """It requests the leader's read index; a paused leader never responds, but another one is elected soon."""
    old = await cluster.leader()
    others = await cluster.followers()
    old.pause()
    began = time.monotonic()
    answers = await asyncio.gather(*(node.get("/v1/kv?key=any") for node in others))
    assert [answer and answer["http_status"] for answer in answers] == [200, 200]
    assert time.monotonic() - began < DEADLINE_S - 1
    old.resume()


async def test_requests_without_majority_end_by_their_deadline(cluster: Cluster) -> None:
    """Writes and linearizable reads are refused and never hang; requests that need no majority succeed (issue 2)."""
    assert await cluster.nodes[0].put("kept", "x")
    await cluster.equal_digests()
    alone = (await cluster.followers())[0]
    others = [node for node in cluster.nodes if node is not alone]
    for node in others:
        node.pause()
    await until(lambda: knows_no_leader(alone), "the lonely node noticing")
    began = time.monotonic()
    refused = await asyncio.gather(alone.put("new", "x"), alone.get("/v1/kv?key=kept"))
    assert [answer and answer["http_status"] for answer in refused] == [503, 503]
    assert all("majority" in str(answer) for answer in refused)
    assert time.monotonic() - began < DEADLINE_S + 4
    local = await alone.get("/v1/kv?key=kept&serializable=true")
    assert local is not None
    assert local["kvs"][0]["value"] == "x"
    code, _, said = await palisade("put", "new", "x", "--timeout", "1", "--endpoints", alone.stream)
    *_, reason = said.splitlines()  # after a second, a line says what it waits for
    assert (code, "nothing was done" in reason, said.count("\n") <= 2) == (UNAVAILABLE, True, True), said
    for node in others:
        node.resume()
    await cluster.ready()
    await until(lambda: accepted(alone, "new"), "a write")
    await cluster.equal_digests()


async def test_leader_without_followers_ends_requests_by_the_deadline(cluster: Cluster) -> None:
    """It cannot know the outcome of an entry of its log, and reports that; soon it accepts no more (issue 2)."""
    leader = await cluster.leader()
    others = await cluster.followers()
    for node in others:
        node.pause()
    began = time.monotonic()
    write = await leader.put("perhaps", "x")
    assert write is not None
    assert write["http_status"] in (503, 504), write
    assert time.monotonic() - began < DEADLINE_S + 4
    later, read = await asyncio.gather(leader.put("surely not", "x"), leader.get("/v1/kv?key=kept"))
    assert [answer and answer["http_status"] for answer in (later, read)] == [503, 503]
    for node in others:
        node.resume()
    await cluster.ready()
    await until(lambda: accepted(leader, "new"), "a write")
    found = await leader.get("/v1/kv?key=surely%20not")
    assert found is not None
    assert found["count"] == 0
    await cluster.equal_digests()


async def follows(old: NodeProcess, new: NodeProcess) -> bool:
    status = await old.status()
    return status.get("role") == "follower" and status["leader"] == new.id


async def knows_no_leader(node: NodeProcess) -> bool:
    status = await node.status()
    return bool(status) and status["leader"] is None


async def accepted(node: NodeProcess, key: str) -> bool:
    answer = await node.put(key, "y")
    return answer is not None and answer["http_status"] == 200
