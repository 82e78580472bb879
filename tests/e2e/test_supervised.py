"""The supervisor with real processes that refuse to run, crash, or do not stop (issue 2)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from palisade.cli.supervisor.child import Child
from palisade.cli.supervisor.cluster import LocalCluster
from palisade.cli.supervisor.events import SupervisorEvent
from palisade.node.local_layout import Layout

pytestmark = pytest.mark.e2e

STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\nsignal.pause()"
CRASHING = "print('out of luck', flush=True)\nraise SystemExit(1)"


class Events:
    """The events of the supervisor, and a way to wait for one."""

    def __init__(self) -> None:
        self.events: list[SupervisorEvent] = []
        self._news = asyncio.Event()

    def __call__(self, event: SupervisorEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def wait(self, name: str, count: int = 1) -> list[SupervisorEvent]:
        async with asyncio.timeout(30):
            while len(found := [event for event in self.events if event.name == name]) < count:
                self._news.clear()
                await self._news.wait()
        return found


@pytest.fixture
def seen() -> Events:
    return Events()


@pytest.fixture
def one_node(tmp_path: Path, seen: Events) -> Callable[..., LocalCluster]:
    """A cluster of one node; with `program`, the process runs that instead of a node."""

    def make(*options: str, program: str | None = None) -> LocalCluster:
        cluster = LocalCluster(Layout("c", 1, 17400), tmp_path, seen, list(options))
        if program is not None:
            for child in cluster.children:
                child.program = ["-c", program]
        return cluster

    return make


async def test_node_with_an_invalid_configuration_is_not_restarted(
    one_node: Callable[..., LocalCluster], seen: Events
) -> None:
    cluster = one_node("--log-level", "loud")
    cluster.start()
    (event,) = await seen.wait("node-exited")
    assert event.fields["restart_in_s"] is None
    assert "log-level: 'loud' is not one of" in event.fields["log_lines"][-1]
    assert "log-level" in cluster.refused["n1"]
    await cluster.stop()


async def test_crashed_node_is_reported_and_restarted(one_node: Callable[..., LocalCluster], seen: Events) -> None:
    cluster = one_node(program=CRASHING)
    cluster.start()
    first, second = (await seen.wait("node-exited", 2))[:2]
    await cluster.stop()
    assert (first.fields["reason"], first.fields["log_lines"]) == ("exit code 1", ["out of luck"])
    assert (first.fields["restart_in_s"], second.fields["restart_in_s"]) == (1.0, 2.0)
    assert "starting it again in 1 s" in first.text


async def test_node_that_does_not_stop_is_killed(one_node: Callable[..., LocalCluster], seen: Events) -> None:
    cluster = one_node(program=STUBBORN)
    cluster.start()
    await until_logged(cluster.children[0], "up")
    await cluster.stop(patience_s=0.2)
    assert [event.fields for event in seen.events if event.name == "killed"] == [{"node": "n1"}]
    assert cluster.children[0].pid is None


async def test_second_signal_ends_the_supervisor_at_once(one_node: Callable[..., LocalCluster], seen: Events) -> None:
    cluster = one_node(program=STUBBORN)
    cluster.start()
    await until_logged(cluster.children[0], "up")
    stopping = asyncio.create_task(cluster.stop(patience_s=60))
    await asyncio.sleep(0)
    cluster.kill()
    async with asyncio.timeout(10):
        await stopping


async def test_ctrl_c_in_the_terminal_does_not_reach_the_nodes(
    one_node: Callable[..., LocalCluster], seen: Events
) -> None:
    """The supervisor stops them in order; a signal to its process group must not do it before."""
    cluster = one_node(program=STUBBORN)
    cluster.start()
    await seen.wait("node-started")
    pid = cluster.children[0].pid
    assert pid is not None
    assert os.getpgid(pid) == pid
    cluster.kill()
    await cluster.stop()


async def until_logged(child: Child, line: str) -> None:
    async with asyncio.timeout(20):
        while line not in child.last_lines():
            await asyncio.sleep(0.02)
