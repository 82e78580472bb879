"""`scripts/moves`: counts by the thousand while copies of segments move all the time and nodes die.

Without --kills, copies only move. With it, a data node, the leader or another member is killed and started again every
few seconds; a data node only while another one announces each of its segments.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from palisade.base.errors import PalisadeError
from palisade.cli.scenarios.counting import QueryCounts, WrongCount
from tests.support.processes import until
from tests.support.segment_ground import PAIRS, SegmentGround


class Run:
    def __init__(self, ground: SegmentGround, queries: int, seed: int) -> None:
        self.ground, self.queries = ground, queries
        self.rng = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.failures: list[str] = []
        self.times_s: list[float] = []

    def goes_on(self) -> bool:
        return len(self.times_s) + len(self.failures) < self.queries

    async def count(self, counts: QueryCounts) -> None:
        while self.goes_on():
            began = time.monotonic()
            try:
                await counts.one()
                self.times_s.append(time.monotonic() - began)
            except (WrongCount, PalisadeError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            if (done := len(self.times_s) + len(self.failures)) % 500 == 0:
                print(f"{done} counts, {self.ground.moves} moves, {len(self.failures)} failures", flush=True)

    async def disturb(self) -> None:
        async with self.ground.client() as client:
            while self.goes_on():
                for _ in range(self.rng.randrange(1, 4)):
                    await self.ground.assign(client, self.rng.choice([p for p in PAIRS if p != self.ground.pair]))
                    await until(lambda: self.ground.is_settled(client), "the end of a move")
                await self.kill_one()
                await until(lambda: self.ground.is_settled(client), "each segment announced twice")

    async def kill_one(self) -> None:
        kind = self.rng.choice(("data node", "leader", "member"))
        if kind == "data node":
            victim = self.ground[self.rng.choice(self.ground.pair)]
        else:
            leader = await self.ground.cluster.leader()
            victim = leader if kind == "leader" else (await self.ground.cluster.followers())[0]
        victim.kill()
        self.kills[kind] += 1
        await asyncio.sleep(self.rng.uniform(0, 12))
        victim.start()
        await until(victim.ready, f"{victim.id} being ready")

    async def run(self, kills: bool) -> None:
        await self.ground.ready()
        async with self.ground.counts() as counts, asyncio.TaskGroup() as group:
            group.create_task(self.disturb() if kills else self.ground.moving(self.goes_on, self.rng))
            for _ in range(2):
                group.create_task(self.count(counts))

    def report(self) -> str:
        times_ms = sorted(1000 * each for each in self.times_s)
        p50, p99 = (times_ms[int(len(times_ms) * share)] for share in (0.5, 0.99))
        killed = ", ".join(f"{number} x {kind}" for kind, number in self.kills.items()) or "none"
        return "\n".join([
            f"{self.queries} counts of {self.ground.rows} rows: {len(self.times_s)} right, {len(self.failures)} failed",
            f"{self.ground.moves} moves; killed: {killed}",
            f"a count: p50 {p50:.0f} ms, p99 {p99:.0f} ms, max {times_ms[-1]:.0f} ms",
            *self.failures[:20],
        ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/moves", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--queries", type=int, default=10_000, help="number of counts (10000)")
    parser.add_argument("--kills", action="store_true", help="kill and restart nodes meanwhile")
    parser.add_argument("--seed", type=int, default=17, help="seed of the moves and kills (17)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palisade-moves-") as folder:
        ground = SegmentGround(Path(folder))
        run = Run(ground, given.queries, given.seed)
        try:
            asyncio.run(run.run(given.kills))
        finally:
            ground.kill()
        print(run.report())
    sys.exit(1 if run.failures else 0)


if __name__ == "__main__":
    main()
