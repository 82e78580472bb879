"""A thousand restarts, one node after the other, under load (issue 5, `tests/faults`).

Clients write, swap and read all the time, and readers are beside all vaults. After every `ROUND` restarts all writes
and reads since the last check are checked, so that a violation is found close to where it happened, and a run of hours
needs no more memory than one of minutes; at the end all acknowledged writes of the whole run are checked once more. The
resources of a node must not grow with its restarts.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from statistics import median

from tests.faults.breaks import nothing_is_lost, whole_again
from tests.faults.ground import Ground, GroundCluster
from tests.faults.growth import Taken, grown, taken_by
from tests.support.fencing_cluster import now
from tests.support.load import Load, check_record
from tests.support.processes import NodeProcess

ROUND = 20
KILLED = 0.2
"""The share of restarts by kill -9."""
PAUSE_S = 0.02
MIXED_PAUSE_S = 0.1


@dataclass
class Restarts:
    """The results so far; times in seconds."""

    done: int = 0
    killed: int = 0
    stopping: list[float] = field(default_factory=list)
    """Of orderly stops: until the process has ended."""
    starting: list[float] = field(default_factory=list)
    """From the start of the process until it is ready, and writes continue."""
    loads: list[Load] = field(default_factory=list)
    taken: list[dict[str, Taken]] = field(default_factory=list)

    def shown(self) -> dict[str, float]:
        found: dict[str, float] = {"restarts": self.done, "killed": self.killed}
        for name, times in (("stop", self.stopping), ("start", self.starting)):
            if times:
                found |= {f"{name}_s_median": round(median(times), 2), f"{name}_s_longest": round(max(times), 2)}
        return found


async def rolling_restarts(ground: Ground) -> None:
    """One node after the other is restarted under load, mostly in order, sometimes by kill -9."""
    cluster, restarts = await ground.serving(), Restarts()
    through = Random(ground.seed)
    async with ground.history(cluster, lambda: through.choice(cluster.members)) as history:
        while restarts.done < ground.times:
            load = await one_round(ground, cluster, restarts, min(ROUND, ground.times - restarts.done))
            async with history.reads_alone():
                await nothing_is_lost(ground, cluster, load)
            restarts.taken.append({node.id: await taken_by(node) for node in cluster.members})
            history.check_so_far()
            lines = ", ".join(f"{name} {value}" for name, value in restarts.shown().items())
            ground.note(f"{lines}; {len(ground.violations)} violations; {shown_of(restarts.taken[-1])}")
            ground.seen |= restarts.shown()
            assert not ground.violations, "a checker found a violation"
    for load in restarts.loads:
        await check_record(load.record, load.prefix, cluster.endpoints)
    first, last = restarts.taken[0], restarts.taken[-1]
    ground.seen["taken"] = {name: {"first": first[name].shown(), "last": last[name].shown()} for name in first}
    ground.violations += [f"{name}: {each}" for name in first for each in grown([of[name] for of in restarts.taken])]


async def one_round(ground: Ground, cluster: GroundCluster, restarts: Restarts, number: int) -> Load:
    """So many restarts, then a check of the history of the mixed clients; the load is still to be checked."""
    name = f"rolling{len(restarts.loads)}"
    load = Load(cluster.endpoints, name, workers=2, pause_s=PAUSE_S, timeout_s=20)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(load)
        await stack.enter_async_context(ground.mixed(cluster, name, MIXED_PAUSE_S))
        for _ in range(number):
            await restart(ground, cluster, restarts, cluster.members[restarts.done % len(cluster.members)])
            await load.writes(10)
            restarts.done += 1
        await whole_again(ground, cluster, load)
    restarts.loads.append(load)
    return load


async def restart(ground: Ground, cluster: GroundCluster, restarts: Restarts, node: NodeProcess) -> None:
    if ground.chance.random() < KILLED:
        node.kill()
        restarts.killed += 1
    else:
        began = now()
        assert await node.stop() == 0, f"{node.id} did not stop in good order: {node.log()[-1500:]}"
        restarts.stopping.append(now() - began)
    began = now()
    node.start()
    await cluster.ready([node])
    restarts.starting.append(now() - began)


def shown_of(taken: dict[str, Taken]) -> str:
    return "; ".join(f"{node} takes {each.shown()}" for node, each in taken.items())


SCENARIOS = (rolling_restarts,)
