"""The demo catalog of a new local cluster: loaded once, through the client API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from palisade.base.counted import counted
from palisade.cli.cluster_check import check_streams
from palisade.cli.supervisor.events import SupervisorEvent
from palisade.cli.waiting import LINES_S, NOTICE_S
from palisade.client import Client
from palisade.client.bulk_load import LoadReport, load_demo, read_demo
from palisade.wire.credentials import Credentials, StoredToken

PATIENCE_S = 30.0
Emit = Callable[[SupervisorEvent], None]
T = TypeVar("T")


async def ensure_demo(endpoints: list[str], emit: Emit, shown: Credentials | None = None) -> LoadReport | None:
    """Loads the missing entries; None if the catalog is complete. Raises the errors of the client and of the reader."""
    if isinstance(shown, StoredToken):
        await check_streams(endpoints, shown)
    async with Client(endpoints, timeout_s=PATIENCE_S, credentials=shown) as client:
        report = await load_demo(client, read_demo, lambda done, total: emit(progress(done, total)))
    if report is not None:
        text = (
            f"demo catalog: {counted(report.entries, 'entry')}, {report.written} of them written (prefix /catalog/), "
            f"{counted(report.published, 'segment')} published"
        )
        counts = {"entries": report.entries, "written": report.written, "published": report.published}
        emit(SupervisorEvent("demo-loaded", text, counts))
    return report


async def with_notices(emit: Emit, load: Callable[[Emit], Coroutine[Any, Any, T]]) -> T:
    """Runs `load`. While it has no event, as long as it reads its input, there is one after `NOTICE_S` and then each
    `LINES_S`."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    due = began + NOTICE_S

    def heard(event: SupervisorEvent) -> None:
        nonlocal due
        due = loop.time() + LINES_S
        emit(event)

    task = asyncio.ensure_future(load(heard))
    try:
        while not (await asyncio.wait({task}, timeout=max(0.0, due - loop.time())))[0]:
            if loop.time() >= due:
                waited_s = round(loop.time() - began)
                text = f"demo catalog: reading the input ({waited_s} s)"
                heard(SupervisorEvent("reading-demo", text, {"seconds": waited_s}))
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def progress(done: int, total: int) -> SupervisorEvent:
    return SupervisorEvent("demo", f"demo catalog: {done} of {total} entries", {"done": done, "total": total})
