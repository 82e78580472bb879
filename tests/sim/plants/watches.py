"""Faults of watches: gaps, repetitions, split revisions, wrong progress and resumption; streams that write on to a
client that does not read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from palisade.api.stream.connection import StreamConnection
from palisade.api.stream.watches import StreamWatch
from palisade.metastore.requests import WatchRequest
from palisade.metastore.results import RevisionEvents
from palisade.metastore.watch import Watcher, WatchHub
from palisade.service.watches import Watching
from tests.sim.plants.plant import CALM, MEMBER_CUT_OFF, SLOW_READERS, Patch, caught_by


def _polled(patch: Patch, edit: Callable[[tuple[RevisionEvents, ...]], tuple[RevisionEvents, ...]]) -> None:
    """Of the events of a node's watches."""
    poll = Watching.poll
    patch.setattr(Watching, "poll", lambda self: edit(poll(self)))


@caught_by("watch contract")
def watches_with_gaps(patch: Patch) -> None:
    _polled(patch, lambda found: found[1:] if len(found) > 1 else found)


@caught_by("watch contract")
def watches_with_repetitions(patch: Patch) -> None:
    _polled(patch, lambda found: (*found, *found[-1:]))


@caught_by("watch contract")
def watches_that_split_revisions(patch: Patch) -> None:
    _polled(patch, lambda found: tuple(RevisionEvents(each.revision, (e,)) for each in found for e in each.events))


@caught_by("watch contract")
def watches_that_resume_too_late(patch: Patch) -> None:
    begin = Watching.__init__

    def later(self: Watching, hub: WatchHub, request: WatchRequest, *arguments: Any, **options: Any) -> None:
        start = request.start_revision
        begin(self, hub, replace(request, start_revision=start and start + 1), *arguments, **options)

    patch.setattr(Watching, "__init__", later)


@caught_by("watch contract", on=MEMBER_CUT_OFF)
def progress_ahead_of_events(patch: Patch) -> None:
    patch.setattr(Watcher, "progress", property(lambda self: self._hub.revision + 2))


@caught_by("back-pressure", on=SLOW_READERS)
def streams_that_do_not_pause(patch: Patch) -> None:
    patch.setattr(StreamConnection, "pause_writing", lambda self: None)


@caught_by("back-pressure", on=SLOW_READERS)
def watches_that_keep_all_history(patch: Patch) -> None:
    """As etcd #17529: unread events of a watcher accumulate in the server."""

    async def room(self: StreamWatch, writable: asyncio.Event) -> None:
        return

    patch.setattr(StreamWatch, "_room", room)


@caught_by("liveness", on=CALM, says="watches lack revisions")
def watches_that_fall_silent(patch: Patch) -> None:
    """After a dozen batches, while new watches are correct."""
    deliver, delivered = Watching.next, Counter[Watching]()

    async def silent(self: Watching) -> Any:
        delivered[self] += 1
        if delivered[self] > 12:
            await asyncio.Future()
        return await deliver(self)

    patch.setattr(Watching, "next", silent)
