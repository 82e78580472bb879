"""Follows a recovery in progress: a bar on a terminal, plain lines elsewhere, lines of JSON for programs.

The node is polled four times a second. The bar is on stderr; the reports of ended recoveries are on stdout.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from palisade.base.counted import counted
from palisade.cli.printing import print_json
from palisade.cli.session import CliSession
from palisade.recovery.report_json import progress_cell, progress_text, report_lines

POLL_S = 0.25
LINE_S, LATER_LINE_S = 1.5, 5.0
"""Maximum time between two plain lines of a recovery in progress: before and after `STEADY_POLLS`."""
STEADY_POLLS = round(10.0 / POLL_S)
Shape = dict[str, Any]


class RecoveryScreen(Protocol):
    """Called with each response of GET /v1/recovery, in order."""

    def show(self, found: Shape) -> None: ...

    def ended(self, report: Shape) -> None:
        """Called when a recovery has ended, if later ones are followed too."""
        ...

    def hide(self) -> None:
        """Erase temporary output, such as a bar, until the next `show`."""
        ...


async def follow(ask: Callable[[], Awaitable[Shape]], screen: RecoveryScreen, for_ever: bool) -> Shape:
    """Polls until no recovery is in progress; returns the last response. `for_ever`: follows later recoveries too,
    until cancelled."""
    known = None
    while True:
        found = await ask()
        screen.show(found)
        if found["under_way"] is None and not for_ever:
            return found
        running = found["under_way"] is not None
        ended = found["begun"] - running
        if for_ever and known is not None:
            reports = found["recoveries"][: len(found["recoveries"]) - running]
            for report in reports[-news(known, ended) or len(reports) :]:
                screen.ended(report)
        known = ended
        await asyncio.sleep(POLL_S)


def news(known: int, ended: int) -> int:
    """The number of recoveries that have ended since then; all of them if the process was restarted."""
    return ended - known if ended >= known else ended


class JsonLines:
    """Prints a JSON object on every change."""

    def __init__(self) -> None:
        self._last: Any = None

    def show(self, found: Shape) -> None:
        if found != self._last:
            self._last = found
            print_json(found)

    def ended(self, report: Shape) -> None:
        """Does nothing: the next object includes the report."""

    def hide(self) -> None:
        """Does nothing: all lines stay."""


class PlainLines:
    """Prints a line for each phase, each tenth of a phase, and each `LINE_S`. `every`, `later`: in polls."""

    def __init__(self, every: int = round(LINE_S / POLL_S), later: int = round(LATER_LINE_S / POLL_S)) -> None:
        self._every, self._later = every, later
        self._last: Any = None
        self._since = self._polls = 0

    def show(self, found: Shape) -> None:
        progress = found["under_way"]
        if progress is None:
            self._last, self._polls = None, 0
            return
        self._polls += 1
        every = self._every if self._polls <= STEADY_POLLS else self._later
        tenth = 10 * progress["done"] // progress["total"] if progress["total"] else None
        self._since += 1
        if (progress["phase"], tenth) != self._last or self._since >= every:
            self._last, self._since = (progress["phase"], tenth), 0
            print(line_of(found), flush=True)

    def ended(self, report: Shape) -> None:
        print("\n    ".join(report_lines(report)), flush=True)

    def hide(self) -> None:
        """Does nothing: all lines stay."""


class Bar:
    """A bar for the current phase; the reports of ended recoveries scroll above it."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task: Any = None
        self._kind: Any = None

    def show(self, found: Shape) -> None:
        progress = found["under_way"]
        kind = None if progress is None else (progress["phase"], progress["total"] is None)
        if kind != self._kind and self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        self._kind = kind
        if progress is None:
            return
        self._progress.start()
        if self._task is None:
            self._task = self._progress.add_task("", total=None, said="")
        self._progress.update(
            self._task,
            description=f"{found['recoveries'][-1]['node']}: {progress_cell(progress)}",
            completed=progress["done"],
            total=progress["total"],
            said=progress_text(progress),
        )

    def ended(self, report: Shape) -> None:
        self._progress.console.print("\n    ".join(report_lines(report)), markup=False, highlight=False)

    def hide(self) -> None:
        if self._progress.live.is_started:
            self._progress.stop()


@contextmanager
def screen_for(session: CliSession) -> Iterator[RecoveryScreen]:
    if session.as_json:
        yield JsonLines()
    elif not sys.stderr.isatty():
        yield PlainLines()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        bar = Bar(progress)
        try:
            yield bar
        finally:
            bar.hide()


def line_of(found: Shape) -> str:
    report = found["recoveries"][-1]
    waited = f"; waited {counted(report['waits'], 'time')} for the cluster" if report["waits"] else ""
    lv = f"LV {report['lv']}, LM {report['lm']}"
    return f"{report['node']}: recovering, {progress_text(found['under_way'])}; {lv}{waited}"
