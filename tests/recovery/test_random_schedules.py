"""Random histories of a cluster and a node: writes, compactions, pauses, crashes anywhere, lost majorities.

After any history, an undisturbed start ends with vault, listeners and local data equal to the cluster's, and all
notifications are in order. The name of a failing test contains the seed.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from palisade.metastore.requests import DeleteRange, Put
from palisade.recovery.cost_estimate import Rates
from palisade.recovery.errors import SourceUnavailable
from palisade.vault.verification import verify
from tests.support.recovery_world import Bench, Crash, Node, Steps

DEAR = Rates(replay_s=1.0, snapshot_s=0.0, advantage=1.0)


class Life:
    """One cluster over many starts of one node."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.bench = Bench(seed, writes=40)

    def disturb(self, node: Node) -> None:
        """The cluster continues while the node recovers, and is not always reachable."""
        rng = self.rng

        def something() -> None:
            dice = rng.random()
            if dice < 0.10:
                raise SourceUnavailable("no majority")
            if dice < 0.25:
                self.bench.write(rng.randrange(4))
            if dice < 0.15:
                self.bench.cluster.wait(rng.choice((1_000, 70_000)))
                self.bench.write(1)
                self.bench.compact()

        for name in ("state", "changes", "pin", "sums", "rows", "spans", "fingerprints", "unpin"):
            node.source.before[name] = something

    def change_cluster(self) -> None:
        rng, bench = self.rng, self.bench
        bench.write(rng.choice((0, 1, 5, 60)))
        if rng.random() < 0.3:
            names = rng.sample(["a", "b", "c", "d", "e"], rng.randrange(4))
            bench.assign(**{name: rng.choice("12") for name in names})
        if rng.random() < 0.2:
            bench.cluster.do(DeleteRange(b"/k/00", b"/k/01"))
        if rng.random() < 0.5:
            bench.cluster.wait(rng.choice((1_000, 3_600_001)))
            bench.cluster.do(Put(b"/tick", b""))
            bench.compact()

    async def start(self, steps: Steps | None) -> Node:
        rates = DEAR if self.rng.random() < 0.3 else Rates()
        node = self.bench.node(
            steps=steps,
            rates=rates,
            difference=self.rng.choice((0, 3, 50)),
            batch_revisions=self.rng.choice((5, 1000)),
            batches_per_commit=self.rng.choice((1, 3)),
        )
        if steps is not None:
            self.disturb(node)
        await node.recover()
        return node

    async def start_and_follow(self, steps: Steps) -> None:
        """A node that runs for a while, may be paused past MM, and dies."""
        node = await self.start(steps)
        task = asyncio.create_task(node.follower.follow())
        for _ in range(self.rng.randrange(60)):
            if self.rng.random() < 0.1:
                self.change_cluster()
            await asyncio.sleep(0)
            if task.done():
                break
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError | Crash), ended
        recorded = node.recorded.revisions
        assert recorded == sorted(set(recorded))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.metastore.change_feed.ROWS_PER_SLICE", 16)
    monkeypatch.setattr("palisade.recovery.store_source.SLICES_PER_CHUNK", 1)


@pytest.mark.parametrize("seed", range(40))
async def test_random_history_ends_in_the_state_of_the_cluster(seed: int) -> None:
    life = Life(seed)
    for _ in range(12):
        life.change_cluster()
        steps: Any = Steps(life.rng.randrange(1, 60), after=life.rng.random() < 0.5)
        try:
            await life.start_and_follow(steps)
        except Crash:
            continue
        finally:
            node_free(life)
    node = await life.start(None)
    node.difference.value = 0
    await node.recover(running=True)
    node.check()
    assert max(verify(node.vault)) == node.vault.key_count
    assert node.vault.revision == life.bench.cluster.store.revision


def node_free(life: Life) -> None:
    """Pins of dead nodes expire."""
    life.bench.cluster.wait(60_001)
    life.bench.cluster.do(Put(b"/tick", b""))
