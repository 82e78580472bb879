"""A watch of the client hears frames of one connection after the other; what it has come to never goes back (M4)."""

from __future__ import annotations

from typing import Any

from metastore.requests import WatchRequest
from node.client.watch import Watch
from node.stream.protocol import Kind


class Nobody:
    """A session without a connection."""

    trouble = None

    def forget_watch(self, number: int) -> None: ...


def watch_from(revision: int) -> Watch:
    return Watch(1, WatchRequest(b"a", b"z", revision), 2.0, Nobody())


def put_at(revision: int) -> list[Any]:
    return [revision, [[False, [b"a", b"1", revision, revision, 1, 0], None]]]


async def test_progress_of_a_node_that_is_behind_does_not_take_a_watch_back() -> None:
    """Storm 20: a member that had just come back from nothing told of its revision 1, and the next watch began at 2."""
    watch = watch_from(30)
    watch.on_frame(Kind.EVENTS, [1, [put_at(35)]])
    assert (await anext(watch)).revision == 35
    watch.on_frame(Kind.PROGRESS, [1, 1])
    watch.on_frame(Kind.PROGRESS, [1, 36])
    assert (await anext(watch)).revision == 36
    assert watch.next_revision == 37


async def test_progress_where_nothing_has_happened_is_told_again() -> None:
    watch = watch_from(30)
    for _ in range(2):
        watch.on_frame(Kind.PROGRESS, [1, 40])
        assert (await anext(watch)).revision == 40
        assert watch.next_revision == 41
