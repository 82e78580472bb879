"""A watch of the client receives frames of one connection after the other; its position never decreases (M4)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.client.watch import HistoryBroken, Watch
from palisade.metastore.errors import Compacted
from palisade.metastore.requests import WatchRequest
from palisade.raftgroup.errors import NodeFailed
from palisade.wire.stream_frames import FrameKind


class NoSession:
    """A session without a connection."""

    trouble = None

    def forget_watch(self, number: int) -> None: ...
    def leave_failed_node(self, error: NodeFailed) -> None: ...


def watch_from(revision: int) -> Watch:
    return Watch(1, WatchRequest(b"a", b"z", revision), 2.0, NoSession())


def put_at(revision: int) -> list[Any]:
    return [revision, [[False, [b"a", b"1", revision, revision, 1, 0], None]]]


async def test_progress_of_a_node_that_is_behind_does_not_move_a_watch_back() -> None:
    """Storm 20: a member restarted with an empty store reported revision 1, and the next watch began at 2."""
    watch = watch_from(30)
    watch.on_frame(FrameKind.EVENTS, [1, [put_at(35)]])
    assert (await anext(watch)).revision == 35
    watch.on_frame(FrameKind.PROGRESS, [1, 1])
    watch.on_frame(FrameKind.PROGRESS, [1, 36])
    assert (await anext(watch)).revision == 36
    assert watch.next_revision == 37


async def test_watch_does_not_continue_in_another_history() -> None:
    """After a restore, later revisions have other content (docs/operations.md). The watch raises an error after the
    events that have arrived, and returns none of the other history."""
    watch = watch_from(30)
    watch.on_frame(FrameKind.WATCHING, [1, 30, ["c", 1]])
    watch.on_frame(FrameKind.EVENTS, [1, [put_at(35)]])
    watch.on_frame(FrameKind.WATCHING, [1, 36, ["c", 2]])
    watch.on_frame(FrameKind.EVENTS, [1, [put_at(40)]])
    watch.on_frame(FrameKind.PROGRESS, [1, 41])
    assert (await anext(watch)).revision == 35
    with pytest.raises(HistoryBroken, match=r"generation 2, this watch of generation 1"):
        await anext(watch)
    assert issubclass(HistoryBroken, Compacted), "a program that restarts its watch handles both alike"


@pytest.mark.parametrize("then", [["c", 1], None])
async def test_watch_continues_in_its_history_and_where_it_is_unknown(then: Any) -> None:
    watch = watch_from(30)
    watch.on_frame(FrameKind.WATCHING, [1, 30, ["c", 1]])
    watch.on_frame(FrameKind.WATCHING, [1, 30, then] if then else [1, 30])
    watch.on_frame(FrameKind.EVENTS, [1, [put_at(35)]])
    assert (await anext(watch)).revision == 35


async def test_progress_is_repeated_while_nothing_happens() -> None:
    watch = watch_from(30)
    for _ in range(2):
        watch.on_frame(FrameKind.PROGRESS, [1, 40])
        assert (await anext(watch)).revision == 40
        assert watch.next_revision == 41
