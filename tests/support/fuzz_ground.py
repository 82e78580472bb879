"""One real process of each kind of node, and the properties that must hold while it is fuzzed.

`watched` surrounds each fuzzer: the process is the same and alive, its log has no exception, its memory has not grown
without bound, a valid client beside it was answered in time, and the store has its earlier content.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from palisade.client import Client
from tests.support.hostile import private_bytes
from tests.support.node_log import faults_in
from tests.support.processes import Cluster, FollowerProcess, NodeProcess, until

MIB = 1024 * 1024
GROWTH_BYTES_MAX = 48 * MIB
HONEST_S_MAX = 3.0
"""The longest that a valid request may take: about 0.1 s on two cores, and below 2 s with six times that load. Thus
fuzzers are not marked `alone`."""
HONEST = "honest/"
FUZZ = "fuzz/"
"""The keys that fuzzers may write."""


class Alone(FollowerProcess):
    def command(self) -> list[str]:
        return [each for each in super().command() if not each.startswith("--join")] + ["--standalone"]


@dataclass
class Ground:
    """`member`: the only voter. `follower` keeps a vault of it, `standalone` has one, `waiting` is not initialized."""

    member: NodeProcess
    follower: NodeProcess
    standalone: NodeProcess
    waiting: NodeProcess

    @property
    def nodes(self) -> list[NodeProcess]:
        return [self.member, self.follower, self.standalone, self.waiting]

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


async def make_ground(folder: Path) -> Ground:
    cluster = Cluster(folder, 1)
    (member,) = cluster.nodes
    ground = Ground(
        member,
        FollowerProcess(folder, "f1", join=member.http),
        FollowerProcess(folder, "s1", join=member.http),
        NodeProcess(folder, "w1"),
    )
    try:
        cluster.start()
        await cluster.ready()
        await member.put("a", "value")
        await fill_own(member)
        for node in (ground.follower, ground.standalone, ground.waiting):
            node.start()
        for node in (ground.follower, ground.standalone):
            await until(node.ready, f"{node.id} being ready ({node.log()[-800:]})")
        await ground.standalone.stop()
        ground.standalone = alone_of(folder, ground.standalone)
        ground.standalone.start()
        for node in (ground.standalone, ground.waiting):
            await until(lambda node=node: node.get("/livez"), f"{node.id} being alive ({node.log()[-800:]})")
    except BaseException:
        ground.kill()
        raise
    return ground


OWN_CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PUT", "/v1/regions/kept", {"prefix": "kept/"}),
    ("POST", "/v1/catalog/operations/create-user?wait_s=30", {"user": "kept", "password": "a password"}),
    (
        "POST",
        "/v1/catalog/operations/grant?wait_s=30",
        {"subject": "user:kept", "privilege": "read", "prefix": "kept/"},
    ),
    ("PUT", "/v1/catalog/databases/kept?wait_s=30", {}),
)
"""The cluster's own keys: a region, a user with a grant, and procedures."""


async def fill_own(member: NodeProcess) -> None:
    for method, path, body in OWN_CHANGES:
        answer = await member.ask(method, path, body, timeout_s=60)
        assert answer is not None, path
        assert answer["http_status"] == 200, answer


def alone_of(folder: Path, node: NodeProcess) -> Alone:
    alone = Alone(folder, node.id)
    alone.http = node.http
    return alone


@dataclass
class Seen:
    """The durations of valid requests, in seconds, and their errors."""

    taken_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def watched(node: NodeProcess, member: NodeProcess, *, unchanged: bool = True) -> AsyncIterator[Seen]:
    """`unchanged`: no fuzzed request may change the store except below FUZZ: neither keys of users nor the cluster's
    own."""
    pid, memory, log_bytes = node.pid, private_bytes(node.pid), len(node.log())
    await until(lambda: has_nothing_open(member), "the end of every procedure that an earlier fuzzer began")
    before, seen, stopped = await contents(member), Seen(), asyncio.Event()
    honest = asyncio.ensure_future(ask_honestly(node, member, seen, stopped))
    try:
        yield seen
    finally:
        stopped.set()
        await honest
    said = node.log()[log_bytes:]
    assert node.running, said[-3000:]
    assert node.pid == pid, said[-3000:]
    assert faults_in(said) == []
    grown = private_bytes(node.pid) - memory
    assert grown < GROWTH_BYTES_MAX, f"{grown / MIB:.0f} MiB more"
    assert not seen.wrong, seen.wrong[:5]
    assert seen.taken_s
    assert max(seen.taken_s) < HONEST_S_MAX
    if unchanged:
        changed = set(before.items()) ^ set((await contents(member)).items())
        assert not changed, sorted(changed)[:5]
    print(f"{len(seen.taken_s)} honest requests, {max(seen.taken_s) * 1000:.0f} ms at most; {grown / MIB:.1f} MiB more")


async def contents(member: NodeProcess) -> dict[bytes, tuple[bytes, int]]:
    """Key -> (value, modification revision) of all keys that no fuzzer and no valid client has written: regions, users,
    grants, procedures and locks (`palisade/`) too. The topology is not in keys."""
    async with Client([member.stream], follow_leader=False) as client:
        found = await client.range(b"\0", range_end=b"\0")
    return {
        kv.key: (kv.value, kv.mod_revision)
        for kv in found.kvs
        if not kv.key.startswith((HONEST.encode(), FUZZ.encode()))
    }


async def has_nothing_open(member: NodeProcess) -> bool:
    answer = await member.get("/v1/procedures?open=true")
    return answer is not None and answer.get("procedures") == []


async def ask_honestly(node: NodeProcess, member: NodeProcess, seen: Seen, stopped: asyncio.Event) -> None:
    """Over HTTP of the node, and, if it is a member, a put and a get over the stream. New connections each time."""
    timeout = aiohttp.ClientTimeout(total=10)
    number = 0
    while not stopped.is_set():
        number += 1
        began = time.monotonic()
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{node.http}/livez") as got,
            ):
                if got.status != 200:
                    seen.wrong.append(f"/livez says {got.status}")
            if node is member:
                async with Client([member.stream], follow_leader=False, timeout_s=10) as client:
                    await client.put(f"{HONEST}{number % 10}", str(number))
                    found = await client.get(f"{HONEST}{number % 10}")
                    if found is None or found.value != str(number).encode():
                        seen.wrong.append(f"put {number}, got {found}")
        except Exception as error:
            seen.wrong.append(f"{type(error).__name__}: {error}")
        seen.taken_s.append(time.monotonic() - began)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), 0.05)


# Sending.


async def say(address: str, data: bytes, dice: Random, patience_s: float = 0.0) -> bytes:
    """In one piece or several; returns the response until `patience_s` of silence, or for ten times as long. Then
    disconnects."""
    host, _, port = address.rpartition(":")
    heard = b""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            cut = dice.randrange(len(data)) if data and dice.random() < 0.3 else len(data)
            writer.write(data[:cut])
            await writer.drain()
            if cut < len(data):
                await asyncio.sleep(0)
                writer.write(data[cut:])
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(10 * patience_s):
                    while patience_s and (more := await asyncio.wait_for(reader.read(1 << 16), patience_s)):
                        heard += more
        finally:
            writer.close()
    return heard
