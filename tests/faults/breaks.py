"""Scenarios of faults beside the network, and of all at once (issue 5): killed and paused processes; disks that are
full, or return other data than were written.

Clients write all the time (`tests/support/load.py`): at the end every acknowledged write exists once, and the replicas
are equal. Readers beside the vaults must not get a stale value.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

from palisade.client import Client, OutcomeUnknown, Unavailable
from tests.faults import kernel
from tests.faults.flipping import flip_bits
from tests.faults.ground import SETTLED_S, Ground, GroundCluster, all_serve
from tests.faults.network import CLIENT
from tests.faults.rules import ANY, Rule, partition
from tests.support.fencing_cluster import make_strict, now
from tests.support.load import Load, check_record
from tests.support.processes import NodeProcess, until

PAUSE_S_MAX = 5.0
STEP_S_MAX = 2.0
BESIDE_PAUSE_S = 0.05
ROOM_BYTES = 24 << 20
VALUE_BYTES = 64 << 10
REFUSED, FAILED = 2, 1
FILES = {"raft": "group", "store": "store", "vault": "vault"}
"""The damaged part of a node, and the component that reads it."""
WHOLE = ("raft", "store")
"""Every value of these is read at start, unless they are large."""
CAME_BACK = "it came back"
NO_ROOM = (
    r"ERROR palisade\.node\.(component_adapters: component \w+ failed|"
    r"fencing\.leader_connection: staged changes not stored): (node={id} error=)?"
    r"the (journal|store|vault) in {folder}/\S+ can't be (written|used): \w+: "
    r"(No space left on device|Input/output error|File too large)\. [^\n]*"
)
"""A node that cannot write reports it and exits. LMDB reports a partially written page as an I/O error."""
NOT_AS_WRITTEN = (
    r"ERROR (palisade\.node\.component_adapters: component ({name}|topology) (could not start|failed)|"
    r"palisade\.node\.fencing\.leader_connection: staged changes not stored): "
    r"[^\n]*(reset|folder|directory)[^\n]*"
)
"""A node that reads damaged data names the remedy and exits; damage that a start does not read may be found later. The
topology component runs the recovery of the vault."""


async def whole_again(ground: Ground, cluster: GroundCluster, load: Load) -> None:
    """Every part makes progress again, in time."""
    for node in cluster.running:
        node.resume()
    cluster.start()
    await ground.heals(cluster.nodes)
    await load.writes(50)


async def nothing_is_lost(ground: Ground, cluster: GroundCluster, load: Load) -> None:
    """Every acknowledged write exists once, and the replicas are equal. No client writes any more."""
    record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests(cluster.members)
    for name, count in (("acknowledged", len(record.acknowledged)), ("unknown", len(record.unknown))):
        ground.seen[name] = ground.seen.get(name, 0) + count


# All faults at once


async def anything(ground: Ground) -> None:
    """Kills, pauses, changes of the leader and every kind of network fault, drawn from the seed, for the requested
    time; a minority at a time is down or paused."""
    cluster = await ground.serving(followers=1)
    async with AsyncExitStack() as stack:
        load = await stack.enter_async_context(Load(cluster.endpoints, "any", workers=2, pause_s=0.02, timeout_s=20))
        history = await stack.enter_async_context(ground.history(cluster, lambda: cluster.members[0]))
        await stack.enter_async_context(ground.mixed(cluster))
        ends, steps = now() + ground.seconds, 0
        while now() < ends:
            steps += 1
            await ground.chance.choices(*zip(*STEPS, strict=True))[0](ground, cluster)
            await asyncio.sleep(ground.chance.random() * STEP_S_MAX)
        ground.seen["steps"] = steps
        await whole_again(ground, cluster, load)
        await history.writes(30)
    await nothing_is_lost(ground, cluster, load)


async def kill(ground: Ground, cluster: GroundCluster) -> None:
    node = ground.chance.choice(cluster.nodes)
    ground.note(f"kill -9 of {node.id}")
    node.kill()
    await asyncio.sleep(ground.chance.random() * STEP_S_MAX)
    node.start()


async def pause(ground: Ground, cluster: GroundCluster) -> None:
    node, seconds = ground.chance.choice(cluster.nodes), ground.chance.random() * PAUSE_S_MAX
    ground.note(f"{node.id} is paused for {seconds:.2f} s")
    node.pause()
    await asyncio.sleep(seconds)
    node.resume()


async def transfer(ground: Ground, cluster: GroundCluster) -> None:
    node = ground.chance.choice(cluster.members)
    ground.note(f"{node.id} is asked to transfer leadership")
    await node.ask("POST", "/v1/leader/transfer", {}, timeout_s=3)


async def weather(ground: Ground, cluster: GroundCluster) -> None:
    ground.become(*some_weather(ground, [node.id for node in cluster.nodes]))


async def calm(ground: Ground, cluster: GroundCluster) -> None:
    ground.become()
    await asyncio.sleep(ground.chance.random() * STEP_S_MAX)


async def flapping(ground: Ground, cluster: GroundCluster) -> None:
    """A link that breaks and heals several times a second."""
    one, other = ground.chance.sample([node.id for node in cluster.nodes], 2)
    ground.note(f"the link of {one} and {other} flaps")
    for _ in range(ground.chance.randint(3, 10)):
        ground.network.become(partition([one], [other]))
        await asyncio.sleep(ground.chance.random() * 0.4)
        ground.network.become([])
        await asyncio.sleep(ground.chance.random() * 0.4)


def some_weather(ground: Ground, hosts: list[str]) -> list[Rule]:
    """One kind of fault for one or two links, one way or both, or for all of them."""
    chance = ground.chance
    one, other = chance.sample(hosts, 2)
    alone = [[one, CLIENT], [each for each in hosts if each != one]] if chance.random() < 0.3 else [[one], hosts]
    kinds: list[list[Rule]] = [
        [Rule(one, other, loss=1.0, carrying=chance.random() < 0.5)],
        partition(alone[0], [each for each in alone[1] if each not in alone[0]]),
        [Rule(one, other, delay_s=chance.choice((0.05, 0.5, 2.0, 4.0)))],
        [Rule(one, ANY, loss=chance.choice((0.02, 0.2)), jitter_s=0.02)],
        [Rule(loss=0.05, duplicate=0.1, jitter_s=0.05)],
        [Rule(one, other, rate_bytes_s=chance.choice((5_000, 50_000)))],
    ]
    return chance.choice(kinds)


STEPS: tuple[tuple[Callable[[Ground, GroundCluster], Awaitable[None]], int], ...] = (
    (weather, 6), (calm, 3), (flapping, 1), (kill, 3), (pause, 2), (transfer, 2),
)  # fmt: skip


# Disks


async def disk_full(ground: Ground) -> None:
    """The disk of one node is full: it reports that and stops, the others continue; with free space it returns."""
    cluster = ground.cluster()
    victim = cluster.members[0]
    if ground.network.disks:
        victim.data_dir.mkdir()
        kernel.mount_memory(victim.data_dir, ROOM_BYTES)
    else:
        victim.before_exec = limited(victim.before_exec)
    ground.explains(victim, NO_ROOM.format(id=victim.id, folder=re.escape(str(victim.data_dir))))
    cluster.start()
    await cluster.ready()
    await make_strict(cluster.members[1])
    async with Client(cluster.endpoints, timeout_s=20) as client, Load(cluster.endpoints, "full", timeout_s=20) as load:
        async with ground.mixed(cluster, pause_s=BESIDE_PAUSE_S):
            await client.transfer(ground.chance.choice(cluster.members).id)
            await runs_full(ground, client, victim)
            await load.writes(50)
            if ground.network.disks:
                kernel.mount_memory(victim.data_dir, 16 * ROOM_BYTES, again=True)
            else:
                victim.before_exec = ground.network.enter(victim.id)
            await whole_again(ground, cluster, load)
        await nothing_is_lost(ground, cluster, load)


async def runs_full(ground: Ground, client: Client, victim: NodeProcess) -> None:
    """It stops, and its last line names the reason and the remedy."""
    for number in range(10 * ROOM_BYTES // VALUE_BYTES):
        if not victim.running:
            break
        with suppress(OutcomeUnknown, Unavailable):
            await client.put(f"filling/{number}", os.urandom(VALUE_BYTES))
    code = await victim.ended()
    last = victim.log().strip().splitlines()[-1]
    ground.note(f"{victim.id} ended with {code}: {last}")
    ground.seen["last_words"] = last
    assert code == FAILED, f"{victim.id} ended with {code}: {victim.log()[-1500:]}"
    assert last.startswith("palisade node: "), last
    assert "make room on the disk" in last, last
    assert "MiB are free on the disk of" in last, last


def limited(before: Callable[[], None] | None) -> Callable[[], None]:
    """Where no disk can be mounted: no file may grow beyond a size, which fails as a full disk does."""

    def limit() -> None:
        import resource

        if before is not None:
            before()
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES // 3, ROOM_BYTES // 3))

    return limit


async def damage(ground: Ground) -> None:
    """Bits flip in the journal, the store or the vault of a stopped node. It refuses to start and names the remedy, or
    it returns, and never with other data than the others have. Every second time one bit is in a value that its start
    reads, so that there is damage to detect."""
    cluster = await ground.serving()
    ground.seen |= {"damaged": 0, "noticed": 0}
    found: dict[str, int] = {}
    for number in range(ground.times):
        name = f"damage{number}"
        async with Load(cluster.endpoints, name, workers=2, timeout_s=20) as load:
            async with ground.mixed(cluster, name, BESIDE_PAUSE_S):
                await load.writes(200)
                victim, part = ground.chance.choice(cluster.members), list(FILES)[number % len(FILES)]
                assert await victim.stop() == 0
                ground.explains(victim, NOT_AS_WRITTEN.format(id=victim.id, name=FILES[part]))
                bits = flip_bits(ground.chance, victim.data_dir / part, sure=number % 2 == 0 and part in WHOLE)
                became = await comes_back(ground, cluster, victim)
                ground.note(f"{bits} bits of {part} of {victim.id} flipped: {became}")
                await whole_again(ground, cluster, load)
            found[f"{part}: {became}"] = found.get(f"{part}: {became}", 0) + 1
            ground.seen["damaged"] += 1
            ground.seen["noticed"] += became != CAME_BACK
            await nothing_is_lost(ground, cluster, load)
    ground.seen["outcomes"] = found


async def comes_back(ground: Ground, cluster: GroundCluster, victim: NodeProcess) -> str:
    """Returns what the node did; the node is ready then. A member is ready before its vault has recovered, and the
    recovery may find the damage."""
    victim.start()
    if await until(lambda: serves_or_ended(victim), f"{victim.id} serving, or saying why not", SETTLED_S) == "serves":
        return CAME_BACK
    code, line = await victim.ended(), victim.log().strip().splitlines()[-1]
    assert code in (FAILED, REFUSED), f"{victim.id} ended with {code}: {victim.log()[-1500:]}"
    assert line.startswith("palisade node: "), f"{victim.id} ended with {code} and says: {victim.log()[-1500:]}"
    ground.note(f"{victim.id}: {line}")
    await comes_back_as_new(cluster, victim)
    return "refused at the start" if code == REFUSED else "stopped"


async def serves_or_ended(node: NodeProcess) -> str | None:
    if not node.running:
        return "ended"
    return "serves" if await all_serve([node]) else None


async def comes_back_as_new(cluster: GroundCluster, victim: NodeProcess) -> None:
    """As the error messages say: an empty folder and --join."""
    founding = victim.options
    shutil.rmtree(victim.data_dir)
    others = [node for node in cluster.members if node is not victim]
    victim.options = cluster.options | {"join": (await cluster.leader(others)).http}
    victim.start()
    await until(victim.ready, f"{victim.id} being back (its log ends with: {victim.log()[-1500:]})", SETTLED_S)
    victim.options = founding


SCENARIOS = (anything, disk_full, damage)
