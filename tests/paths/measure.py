"""Traces every journey on a new cluster: `measured` for programs, `scripts/paths` for people."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.paths.cluster import Disturbed, TracedCluster
from tests.paths.journeys import JOURNEYS, Journey, Send, senders
from tests.paths.trace import RequestPath, Trace, Window, path_of

WARM_UPS = 10
ATTEMPTS = 3
REPETITIONS = 17
MAJORITY = 9
"""Enough for the path to the end: how soon some effects come is chance."""
FASTEST = 11
"""Of the repetitions, all of them enough for the path to the answer: least of other work fell into these."""
QUIET_S = 0.4
IDLE_WINDOWS, IDLE_WINDOW_S = 10, 0.25
"""Together at least two periods of the periodic work, the rarest excepted."""


class Sent(NamedTuple):
    """When a request was sent and answered, and when its effects had ended."""

    sent_ns: int
    answered_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class NodePath:
    """`to_answer`: from the request to its answer; None for a node that was not asked. `to_end`: until the effects of
    the request have ended, such as the step of the vault."""

    to_answer: RequestPath | None
    to_end: RequestPath

    @property
    def main(self) -> RequestPath:
        return self.to_answer or self.to_end

    @property
    def possible_files(self) -> frozenset[str]:
        return self.main.possible_files | self.to_end.possible_files


Paths = dict[tuple[str, str], NodePath]
"""By journey and role."""


async def measured(authorization: bool, journeys: Sequence[Journey] = JOURNEYS) -> Paths:
    """Starts again if the machine disturbs it. Raises Disturbed if it always does."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(Disturbed):
            return await _measured(authorization, journeys)
    return await _measured(authorization, journeys)


async def measured_each(
    settings: Sequence[bool] = (False, True), journeys: Sequence[Journey] = JOURNEYS
) -> dict[bool, Paths]:
    """With authorization off and on, at the same time."""
    found = await asyncio.gather(*(measured(authorization, journeys) for authorization in settings))
    return dict(zip(settings, found, strict=True))


def different_files(off: NodePath, on: NodePath) -> frozenset[str]:
    """Files that the request enters only with authorization on, or only with it off. A file that the other setting
    enters in some windows, or after the answer, is no difference: when it is entered is chance."""
    return (on.main.own_files - off.possible_files) | (off.main.own_files - on.possible_files)


async def _measured(authorization: bool, journeys: Sequence[Journey]) -> Paths:
    with tempfile.TemporaryDirectory(prefix="palisade-paths-") as folder:
        cluster = TracedCluster(Path(folder), authorization=authorization)
        try:
            await cluster.open()
            async with senders(cluster) as send:
                await _warm_up(send)
                cluster.begin()
                idle, sent = await _idle(), await _sent([(journey, send[journey.name]) for journey in journeys])
                traces = await cluster.traces()
        finally:
            cluster.close()
    return {
        (journey.name, role): _path(traces[role], journey, role, sent[journey.name], idle)
        for journey in journeys
        for role in journey.roles
    }


def _path(trace: Trace, journey: Journey, role: str, sent: list[Sent], idle: list[Window]) -> NodePath:
    if trace.began_ns > idle[0].from_ns:
        raise Disturbed("a node began to record too late: the machine is overloaded")
    to_end = path_of(trace, [Window(each.sent_ns, each.ended_ns) for each in sent], idle, MAJORITY)
    if role != journey.roles[0]:
        return NodePath(None, to_end)
    fastest = sorted(sent, key=lambda each: each.answered_ns - each.sent_ns)[:FASTEST]
    to_answer = path_of(trace, [Window(each.sent_ns, each.answered_ns) for each in fastest], idle, FASTEST)
    return NodePath(to_answer, to_end)


async def _warm_up(send: dict[str, Send]) -> None:
    """With all journeys: some read what others write."""
    for _ in range(WARM_UPS):
        for journey in JOURNEYS:
            await send[journey.name]()


async def _idle() -> list[Window]:
    await asyncio.sleep(QUIET_S)
    found = []
    for _ in range(IDLE_WINDOWS):
        from_ns = time.monotonic_ns()
        await asyncio.sleep(IDLE_WINDOW_S)
        found.append(Window(from_ns, time.monotonic_ns()))
    return found


async def _sent(requests: Sequence[tuple[Journey, Send]]) -> dict[str, list[Sent]]:
    """Every request several times, one journey after the other: fenced reads are hot if no put comes between."""
    found: dict[str, list[Sent]] = defaultdict(list)
    for journey, send in requests:
        for _ in range(REPETITIONS):
            sent_ns = time.monotonic_ns()
            await send()
            answered_ns = time.monotonic_ns()
            await asyncio.sleep(journey.effects_s)
            found[journey.name].append(Sent(sent_ns, answered_ns, time.monotonic_ns()))
    return found
