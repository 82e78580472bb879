"""A writer whose node does not exist is refused at once; one whose node is down waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from palisade.raftgroup.errors import Unavailable
from palisade.wire.segment_errors import SegmentError
from tests.support.opening_nodes import SEGMENT, DataNodes


async def test_node_that_does_not_exist_is_named_at_once() -> None:
    """The command waited 5 s for it, and ended with exit code 3, after which a retry may succeed."""
    nodes = DataNodes()
    with pytest.raises(SegmentError, match="there is no node n9; the nodes are f1, n1, n2, n3, n4; correct") as refused:
        await nodes.writer(node="n9").open()
    assert (refused.value.retry, nodes.asked, nodes.looked_up) == (False, [], 1)


@pytest.mark.parametrize("node", ["n4", "f1"])
async def test_node_that_is_down_is_waited_for(node: str) -> None:
    """A member, and a node that went down less than a minute ago."""
    nodes = DataNodes()
    with pytest.raises(Unavailable, match=f"node {node} is not in the topology, or does not answer"):
        await nodes.writer(timeout_s=0.05, node=node).open()
    assert nodes.looked_up > 1


async def test_node_that_is_down_is_named_while_the_topology_is_asked_for_it() -> None:
    """The notice was that of the request for the topology: "n3 has not finished the request"."""
    nodes, seen, waits = DataNodes(), list[str](), [""]
    writer = nodes.writer(timeout_s=0.25, node="n4")
    writer._waits = lambda what: waits.__setitem__(0, what)
    topology = writer._topology

    async def asked() -> Mapping[str, Any]:
        seen.append(waits[0])
        return await topology()

    writer._topology = asked
    with pytest.raises(Unavailable):
        await writer.close_of(SEGMENT, "n4")
    first, *later = seen
    assert (first, len(later) > 0, waits) == ("", True, [""])
    assert set(later) == {"node n4 is not in the topology, or does not answer (palisade topology)"}


async def test_unknown_topology_is_waited_for_before_a_node_is_refused() -> None:
    nodes = DataNodes()
    nodes.unavailable = 2
    assert await nodes.writer(node="n1").open()
