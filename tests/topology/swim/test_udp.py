"""SWIM over real sockets on loopback: few, and waiting for conditions. What is decided is tested in test_swim.py."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from palisade.topology.swim.protocol import Change, Swim
from palisade.topology.swim.record import Record, SwimState
from palisade.topology.swim.timing import SwimTiming
from palisade.topology.swim.udp import SwimSocket
from palisade.topology.swim.wire import RUMOUR_BYTES_MAX, DropReason, record_bytes
from tests.support.waiting import until

QUICK = SwimTiming(period_s=0.05, ack_s=0.02)


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


Make = Callable[..., SwimSocket]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[SwimSocket] = []

    def one(name: str, seeds: list[int], cluster: str = "c1", host: str = "127.0.0.1") -> SwimSocket:
        port = free_udp_port()
        own = Record(name, f"{host}:{port}", f"{name}-{port}")
        now = asyncio.get_running_loop().time()
        swim = Swim(
            own, [f"{host}:{each}" for each in seeds], random.Random(port), now,
            size_of=record_bytes, rumour_bytes_max=RUMOUR_BYTES_MAX, timing=QUICK,
        )  # fmt: skip
        changes: list[Change] = []
        made.append(SwimSocket(swim, cluster, changes.append))
        return made[-1]

    yield one
    for each in made:
        each.close()


def port_of(node: SwimSocket) -> int:
    return int(node.swim.own.address.rpartition(":")[2])


async def start(node: SwimSocket) -> SwimSocket:
    await node.start("127.0.0.1", port_of(node))
    return node


def names(node: SwimSocket) -> list[str]:
    return [record.name for record in node.swim.live()]


async def test_three_nodes_find_each_other_one_leaves_one_crashes(make: Make) -> None:
    first = await start(make("n1", []))
    second = await start(make("n2", [port_of(first)]))
    third = await start(make("n3", [port_of(first)], host="localhost"))
    await until(lambda: all(names(node) == ["n1", "n2", "n3"] for node in (first, second, third)))
    await third.leave()
    third.close()
    await until(lambda: first.swim.get("n3").state is SwimState.LEFT)  # type: ignore[union-attr]
    second.close()
    await until(lambda: first.swim.get("n2").state is SwimState.DEAD)  # type: ignore[union-attr]


async def test_invalid_and_foreign_datagrams_are_dropped_and_counted(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """scenarios.md, "Everywhere": garbage and half frames on every port. One log line for each reason."""
    node = await start(make("n1", []))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for datagram in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PSWM", b"PSWM" + bytes(60), bytes(9000)):
            stranger.sendto(datagram, ("127.0.0.1", port_of(node)))
    await until(lambda: node.dropped.total() == 5)
    assert node.dropped == {DropReason.NOT_OURS: 3, DropReason.OTHER_VERSION: 1, DropReason.TOO_LARGE: 1}
    lines = [each.getMessage() for each in caplog.records if "dropped a datagram" in each.getMessage()]
    assert [line.partition(" reason=")[2].partition(":")[0] for line in lines] == [
        "not-ours", "other-version", "too-large",
    ]  # fmt: skip
    assert names(node) == ["n1"]


async def test_node_of_another_cluster_gets_the_reason_and_no_roster(make: Make) -> None:
    node = await start(make("n1", []))
    other = await start(make("n2", [port_of(node)], cluster="c2"))
    await until(lambda: other.strangers)
    assert list(other.strangers.values()) == ["this node belongs to cluster c1"]
    assert node.dropped[DropReason.OTHER_CLUSTER] >= 1
    assert (names(node), names(other)) == (["n1"], ["n2"])
