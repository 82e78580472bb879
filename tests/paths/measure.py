"""Traces every journey on a new cluster: `measured` for programs, `scripts/paths` for people."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.paths.cluster import TracedCluster
from tests.paths.journeys import JOURNEYS, Send, senders
from tests.paths.trace import RequestPath, Trace, Window, path_of

WARM_UPS = 15
WINDOWS = 7
IDLE_S = 3.0
"""Longer than the time between two renewals of a lease, two pings and two turns of other periodic work."""

Paths = dict[tuple[str, str], RequestPath]
"""By journey and role."""


async def measured(authorization: bool) -> Paths:
    """Raises RuntimeError if a request fails or the leader changes."""
    with tempfile.TemporaryDirectory(prefix="palisade-paths-") as folder:
        cluster = TracedCluster(Path(folder), authorization=authorization)
        try:
            await cluster.open()
            async with senders(cluster) as send:
                await _warm_up(send)
                cluster.begin()
                idle, windows = await _idle(), await _windows(send)
                traces = await cluster.traces()
        finally:
            cluster.close()
    return {
        (journey.name, role): _path(traces[role], windows[journey.name], idle)
        for journey in JOURNEYS
        for role in journey.roles
    }


async def measured_both(settings: Iterable[bool] = (False, True)) -> dict[bool, Paths]:
    """With authorization off and on, at the same time."""
    asked = list(settings)
    return dict(zip(asked, await asyncio.gather(*map(measured, asked)), strict=True))


def _path(trace: Trace, windows: list[Window], idle: Window) -> RequestPath:
    if trace.began_ns > idle.from_ns:
        raise RuntimeError("a node began to record too late")
    return path_of(trace, windows, [idle])


async def _warm_up(send: dict[str, Send]) -> None:
    for _ in range(WARM_UPS):
        for journey in JOURNEYS:
            await send[journey.name]()
    await asyncio.sleep(1.0)


async def _idle() -> Window:
    await asyncio.sleep(0.3)
    from_ns = time.monotonic_ns()
    await asyncio.sleep(IDLE_S)
    return Window(from_ns, time.monotonic_ns())


async def _windows(send: dict[str, Send]) -> dict[str, list[Window]]:
    """The windows of each journey, which take turns."""
    found: dict[str, list[Window]] = {journey.name: [] for journey in JOURNEYS}
    for _ in range(WINDOWS):
        for journey in JOURNEYS:
            from_ns = time.monotonic_ns()
            await send[journey.name]()
            await asyncio.sleep(journey.effects_s)
            found[journey.name].append(Window(from_ns, time.monotonic_ns()))
    return found
