"""A writer opens one realtime segment, whatever happens to its requests (issue 17)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from palisade.base.http_request import Answer, NoAnswer
from palisade.client.loop_thread import LoopThread
from palisade.client.realtime import PAUSE_S, RealtimeWriter
from palisade.client.sync_realtime import SyncRealtimeWriter
from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
from palisade.wire.segment_errors import NoSuchSegment, NotIngesting, RealtimeNotStored
from tests.support.opening_nodes import REFUSED, TIMEOUT, DataNodes
from tests.support.simulation import Simulation


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.client.realtime.PAUSE_S", 0.0)


@pytest.mark.parametrize("lost", [TIMEOUT, NoAnswer("n", "connection reset"), 504])
async def test_opening_whose_answer_is_lost_is_repeated_at_the_same_node(lost: Any) -> None:
    """The next node opened a second segment, which stayed empty."""
    nodes = DataNodes(n1=[lost, TIMEOUT, 503, 200])
    writer = nodes.writer()
    await writer.open()
    assert nodes.asked == ["n1"] * 4
    assert list(nodes.opened.values()) == [writer.segment]
    assert writer.node == "n1"


@pytest.mark.parametrize("refusal", [REFUSED, 503, 507, 404])
async def test_node_that_certainly_opened_nothing_is_left(refusal: Any) -> None:
    nodes = DataNodes(n1=[refusal], n2=[refusal])
    writer = nodes.writer()
    await writer.open()
    assert (nodes.asked, writer.node) == (["n1", "n2", "n3"], "n3")
    assert len(nodes.opened) == 1


async def test_node_that_may_have_opened_the_segment_is_not_left_before_the_deadline_nor_after_it() -> None:
    nodes = DataNodes(n1=[TIMEOUT, REFUSED])
    writer = nodes.writer(timeout_s=0.05)
    with pytest.raises(OutcomeUnknown):
        await writer.open()
    nodes.outcomes["n1"] = [200]
    assert await writer.open() == next(iter(nodes.opened.values()))
    assert set(nodes.asked) == {"n1"}


async def test_writer_whose_call_is_cancelled_continues_at_the_same_node() -> None:
    nodes = DataNodes(n1=[503, 200])
    nodes.frozen = "n2"
    writer = nodes.writer()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(writer.open(), 0.05)
    nodes.frozen = ""
    await writer.open()
    assert nodes.asked == ["n1", "n2", "n2"]
    assert len(nodes.opened) == 1


async def test_writer_without_a_name_repeats_its_opening_at_the_named_node_under_one_name() -> None:
    nodes = DataNodes(n2=[TIMEOUT, 200])
    await nodes.writer(node="n2").open()
    assert nodes.asked == ["n2", "n2"]
    assert len(nodes.opened) == 1
    await nodes.writer(node="n2").open()
    assert len(nodes.opened) == 2, "another program has another segment"


async def test_writers_of_one_name_share_a_segment() -> None:
    nodes = DataNodes()
    names = {await nodes.writer(node="n2", writer="w1").open() for _ in range(3)}
    assert len(names) == 1


async def test_refusals_of_every_node_are_named_at_the_deadline() -> None:
    nodes = DataNodes(n1=[404], n2=[REFUSED], n3=[507])
    with pytest.raises(NotIngesting, match=r"n1: status 404; n2: no node answers.*refused; n3: status 507"):
        await nodes.writer(timeout_s=0.02).open()
    assert not nodes.opened


async def test_refusal_that_holds_at_every_node_ends_the_opening() -> None:
    nodes = DataNodes(n1=[409])
    with pytest.raises(Exception, match="status 409"):
        await nodes.writer().open()
    assert nodes.asked == ["n1"]


async def test_named_node_that_cannot_store_is_not_left() -> None:
    with pytest.raises(RealtimeNotStored):
        await DataNodes(n2=[507]).writer(node="n2").open()


async def test_writer_without_a_name_closes_its_segment_at_the_end() -> None:
    """No other program could continue it, and without its node no query of the interval is complete."""
    nodes = DataNodes()
    async with nodes.writer() as writer:
        await writer.append([[1]])
    assert nodes.closed == [writer.segment]


async def test_segment_that_the_program_closes_is_not_closed_again() -> None:
    nodes = DataNodes()
    async with nodes.writer() as writer:
        await writer.close()
    assert nodes.closed == [writer.segment]


async def test_segment_of_a_named_writer_stays_open() -> None:
    nodes = DataNodes()
    async with nodes.writer(node="n2", writer="w1") as writer:
        await writer.append([[1]])
    assert nodes.closed == []


async def divided(writer: RealtimeWriter) -> None:
    """The program fails after its first batch."""
    async with writer:
        await writer.append([[1], [2]])
        raise ZeroDivisionError


async def test_error_of_the_program_names_the_segment_that_stays_open() -> None:
    """Whether its rows are wanted is for the program to decide."""
    nodes = DataNodes()
    writer = nodes.writer()
    with pytest.raises(ZeroDivisionError) as caught:
        await divided(writer)
    assert nodes.closed == []
    assert caught.value.__notes__ == [
        f"realtime segment {writer.segment} stays open at node n1 with 2 rows: 'palisade segments realtime close "
        f"{writer.segment}' publishes them"
    ]


async def test_opening_that_fails_closes_nothing() -> None:
    nodes = DataNodes(n1=[409])
    with pytest.raises(Exception, match="status 409"):
        async with nodes.writer():
            pass
    assert nodes.closed == []


@contextmanager
def running_loop() -> Iterator[LoopThread]:
    async def nothing() -> None: ...

    thread = LoopThread(nothing, nothing)
    yield thread
    thread.stop()


def test_blocking_writer_closes_its_segment_as_the_other_one() -> None:
    nodes = DataNodes()
    with running_loop() as thread:
        with SyncRealtimeWriter(nodes.writer(), thread) as writer:
            writer.append([[1]])
        assert nodes.closed == [writer.segment]
        with pytest.raises(ZeroDivisionError) as caught, SyncRealtimeWriter(nodes.writer(), thread):
            raise ZeroDivisionError
    assert "stays open at node n1" in caught.value.__notes__[0]
    assert len(nodes.closed) == 1


async def test_address_of_the_node_is_looked_up_again_only_if_it_does_not_answer() -> None:
    nodes = DataNodes(n2=[200, 200, 200, REFUSED, 200])
    writer = nodes.writer(node="n2")
    await writer.open()
    for _ in range(4):
        await writer.append([[1], [2]])
    assert (writer.rows, nodes.rows, nodes.looked_up) == (8, 8, 2)


async def test_address_that_another_node_has_now_is_looked_up_again() -> None:
    nodes = DataNodes(n2=[200, 404, 200])
    writer = nodes.writer(node="n2")
    await writer.open()
    await writer.append([[1]])
    assert (writer.rows, nodes.looked_up) == (1, 2)


async def test_unknown_segment_ends_the_append() -> None:
    nodes = DataNodes(n2=[200, 404])
    writer = nodes.writer(node="n2")
    await writer.open()
    with pytest.raises(NoSuchSegment):
        await writer.append([[1]])


@pytest.mark.parametrize(("target", "ends"), [({}, NotIngesting), ({"node": "n1"}, Unavailable)])
async def test_writer_waits_for_a_cluster_that_does_not_answer(target: dict[str, str], ends: type[Exception]) -> None:
    """At the deadline the outcome is known: no node was asked for anything but the topology."""
    nodes = DataNodes()
    nodes.unavailable = 3
    await nodes.writer(**target).open()
    assert nodes.looked_up == 4
    nodes.unavailable = 1 << 30
    with pytest.raises(ends, match="no leader"):
        await nodes.writer(timeout_s=0.02, **target).open()


async def test_append_and_close_that_reach_no_node_are_known_to_have_done_nothing() -> None:
    nodes = DataNodes()
    writer = nodes.writer(timeout_s=0.05, node="n1")
    await writer.open()
    nodes.outcomes["n1"] = [REFUSED]
    with pytest.raises(Unavailable, match="nothing was done"):
        await writer.append([[1]])
    with pytest.raises(Unavailable, match="nothing was done"):
        await writer.close()
    nodes.outcomes["n1"] = [504, REFUSED]
    with pytest.raises(OutcomeUnknown):
        await writer.append([[1]])


@pytest.mark.parametrize(("node", "ends"), [("n1", Unavailable), ("", NotIngesting)])
def test_last_attempt_begins_before_the_deadline(
    node: str, ends: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began after the deadline: the request was sent, its answer was not awaited, and the outcome was unknown."""
    monkeypatch.setattr("palisade.client.realtime.PAUSE_S", 0.1)
    nodes = DataNodes(**{name: [503] for name in ("n1", "n2", "n3")})
    began: list[float] = []

    async def opens() -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()

        async def answer_later(*given: Any, **_: Any) -> Answer:
            began.append(loop.time() - start)
            await asyncio.sleep(0.02)
            return await nodes.json(*given)

        writer = nodes.writer(timeout_s=0.3, node=node)
        writer._requests.json = answer_later  # type: ignore[assignment,method-assign]
        await writer.open()

    with closing(Simulation(1)) as simulation, pytest.raises(ends, match="status 503"):
        simulation.run(simulation.process("client"), opens())
    assert len(began) > 2
    assert began[-1] < 0.3


@pytest.mark.parametrize("node", ["", "n1"])
async def test_writer_ends_at_its_deadline_although_the_node_is_frozen(node: str) -> None:
    """`palisade segments realtime append` took 15 s of its 5 s: each request had 5 s of its own (issue 16)."""
    nodes = DataNodes()
    nodes.frozen = "n1"
    began = asyncio.get_running_loop().time()
    with pytest.raises(OutcomeUnknown, match="n1: no answer in time"):
        await nodes.writer(0.2, node=node).open()
    assert asyncio.get_running_loop().time() - began < 2


async def test_writer_ends_at_its_deadline_although_the_topology_is_not_known() -> None:
    nodes = DataNodes()

    async def never() -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    writer = nodes.writer(0.2)
    writer._topology = never
    began = asyncio.get_running_loop().time()
    with pytest.raises(NotIngesting, match="the topology is not known: no answer in time"):
        await writer.open()
    assert asyncio.get_running_loop().time() - began < 2


async def test_writer_names_the_node_that_it_waits_for() -> None:
    """The command named the node of its stream, while it waited for a frozen data node (issue 16)."""
    nodes, seen = DataNodes(), list[str]()
    nodes.frozen = "n2"
    writer = nodes.writer(timeout_s=0.1, node="n2")
    writer._waits = seen.append
    with pytest.raises(OutcomeUnknown):
        await writer.open()
    await writer.release()
    assert seen[:2] == ["no answer yet from n2 at n2", ""]
    assert seen[-1] == ""


async def test_refusals_of_the_nodes_are_named_although_the_topology_is_lost_at_the_end() -> None:
    """Issue 16: only "the topology is not known: no answer in time" was left of them."""
    nodes = DataNodes(n1=[404], n2=[404], n3=[404])
    known = nodes.topology

    async def once() -> dict[str, Any]:
        if nodes.looked_up:
            await asyncio.Event().wait()
        return await known()

    nodes.topology = once  # type: ignore[method-assign]
    writer = nodes.writer(timeout_s=0.3)
    with pytest.raises(NotIngesting, match="n1: status 404; n2: status 404; n3: status 404"):
        await writer.open()
    await writer.release()


def test_nodes_that_do_not_answer_are_skipped_before_a_segment_is_opened() -> None:
    """`append` waited its whole deadline for a frozen node, although others were healthy (issue 16)."""
    nodes = DataNodes()
    nodes.silent = {"n1", "n2"}
    assert [opened_by(nodes)] == list(nodes.opened.values())
    assert nodes.asked == ["n3"]


def opened_by(nodes: DataNodes) -> str:
    """The segment that a writer opens within 5 s of simulated time, with the pauses of the product."""

    async def opens() -> str:
        return await nodes.writer().open()

    with closing(Simulation(1)) as simulation, pytest.MonkeyPatch.context() as patch:
        patch.setattr("palisade.client.realtime.PAUSE_S", PAUSE_S)
        segment: str = simulation.run(simulation.process("client"), opens())
    return segment


def test_reason_of_the_node_that_answers_is_named_beside_frozen_ones() -> None:
    nodes = DataNodes(n3=[503])
    nodes.silent = {"n1", "n2"}
    with pytest.raises(NotIngesting, match=r"n1: no answer in time; n2: no answer in time; n3: status 503"):
        opened_by(nodes)
    nodes = DataNodes(n3=[503, 504])
    nodes.silent = {"n1", "n2"}
    with pytest.raises(OutcomeUnknown, match="n3: status 504"):
        opened_by(nodes)


def test_nothing_was_done_if_no_node_answers() -> None:
    """A request to open a segment was sent to each, so the outcome was unknown."""
    nodes = DataNodes()
    nodes.silent = {"n1", "n2", "n3"}
    with pytest.raises(NotIngesting, match=r"n1: no answer in time; n2: no answer in time; n3: no answer in time"):
        opened_by(nodes)
    assert nodes.asked == []


def test_nodes_that_had_little_time_to_answer_are_counted_in_a_notice_and_not_named() -> None:
    """It named each node as soon as it was asked, so slow ones were taken for frozen."""
    nodes, seen = DataNodes(), list[str]()
    nodes.silent = {"n1", "n2"}

    async def opens() -> None:
        writer = nodes.writer()
        writer._waits = seen.append
        await writer.open()

    with closing(Simulation(1)) as simulation:
        simulation.run(simulation.process("client"), opens())
    counts = [f"no answer yet from {each}" for each in ("3 data nodes", "2 data nodes", "1 data node")]
    assert [text for text in dict.fromkeys(seen) if text] == [*counts, "no answer yet from n3 at n3"]


async def test_rows_refused_as_not_announced_have_an_unknown_outcome() -> None:
    """503 `realtime-not-announced` means that the rows may be stored (docs/http-api.md)."""
    nodes = DataNodes()
    writer = nodes.writer(timeout_s=0.05, node="n1")
    await writer.open()
    nodes.outcomes["n1"] = [503]
    with pytest.raises(
        OutcomeUnknown, match="n1: status 503; the request may have been executed; the call can be repeated"
    ):
        await writer.append([[1]])


async def test_last_attempt_without_an_answer_keeps_the_reason_of_the_node() -> None:
    nodes = DataNodes()
    writer = nodes.writer(timeout_s=0.2, node="n1")
    await writer.open()
    nodes.outcomes["n1"] = [504, REFUSED]
    with pytest.raises(
        OutcomeUnknown, match="connection refused; before: n1: status 504; the request may have been executed"
    ):
        await writer.append([[1]])
