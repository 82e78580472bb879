"""A node serves again only when its vault and every recovery listener are up to date (F2, F11: "a listener that is slow
or fails"; seed 000, the first point of its review). Over the real wiring, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from palisade.fencing.messages import HolderPhase
from palisade.metastore.requests import Put
from palisade.node.fencing.fencing_component import FencingComponent
from palisade.node.fencing.view import fencing_view
from tests.node.fencing.test_visibility import Shown
from tests.support.wired_parts import TIMING
from tests.support.wired_world import Node


@pytest.fixture
def shown() -> Iterator[Shown]:
    made = Shown()
    yield made
    made.simulation.close()


def lapse(shown: Shown, node: Node) -> None:
    """Pauses the node for longer than its lease, then resumes it."""
    node.process.pause()
    shown.simulation.run_for(2 * TIMING.fence_s)
    node.process.resume()


def test_slow_listener_keeps_a_node_from_serving_and_delays_neither_leases_nor_writes(shown: Shown) -> None:
    node, let_go = shown.cluster.nodes["n3"], asyncio.Event()
    asked = []

    async def slow() -> None:
        asked.append(shown.simulation.now)
        await let_go.wait()

    node.part.listeners["a cache"] = slow
    assert node.holder.serves, "it is asked at the next recovery"
    lapse(shown, node)
    shown.simulation.run_for(3.0)
    assert len(asked) == 1
    assert (node.holder.core.state, node.holder.serves) == (HolderPhase.RECOVERING, False)
    assert node.holder.core.lease_age(node.process.now()) is not None, "it is granted leases meanwhile"
    began = shown.simulation.now
    shown.write(Put(b"t/a", b"1"))
    assert shown.simulation.now - began < 0.2, "it has staged, so no write waits for it"
    node.process.call(let_go.set)
    shown.simulation.run_until(lambda: node.holder.serves, within_s=0.5)


def test_failing_listener_keeps_the_node_fenced_and_is_retried(shown: Shown) -> None:
    node, tries = shown.cluster.nodes["n3"], 0

    async def failing() -> None:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise OSError("disk full")

    node.part.listeners["a cache"] = failing
    lapse(shown, node)
    shown.simulation.run_until(lambda: tries == 2, within_s=2)
    lease = fencing_view(node.part, node.process.now(), node.fencing)["lease"]
    assert not lease["serves"]
    assert lease["listener_failure"] == "a cache: disk full"
    shown.simulation.run_until(lambda: tries == 4, within_s=5)
    shown.simulation.run_until(lambda: node.holder.serves, within_s=0.5)
    assert tries == 4


def behind(shown: Shown) -> Node:
    """A node whose vault applies nothing, long after its lease has expired; the others have moved on."""
    node = shown.cluster.nodes["n3"]
    node.recover_now.set()
    node.follower.step = partial(asyncio.sleep, 0.01)  # type: ignore[method-assign]
    node.follower.recover = lambda running=False: asyncio.sleep(0)  # type: ignore[method-assign, assignment]
    node.beside._leaps = type(node.beside._leaps)(maxlen=0)
    node.process.pause()
    shown.simulation.run_for(2 * TIMING.fence_s)
    for number in range(5):
        shown.write(Put(b"t/a", b"%d" % number))
    node.process.resume()
    shown.simulation.run_for(3.0)
    assert node.vault.revision < node.holder.core.released
    return node


def test_node_whose_vault_is_behind_rr_serves_nothing(shown: Shown) -> None:
    node = behind(shown)
    assert (node.holder.core.state, node.holder.serves) == (HolderPhase.RECOVERING, False)


def test_planted_missing_wait_for_the_vault_is_seen(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: recovery is over as soon as it begins."""
    monkeypatch.setattr(FencingComponent, "_recover", lambda part, holder: holder.recovered(holder.begin_recovery()))
    assert behind(shown).holder.serves
