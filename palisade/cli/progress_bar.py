"""A progress bar for work on bytes, on stderr: on a terminal a bar that is erased at the end, else lines on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from palisade.cli.waiting import NOTICE_S, ProgressLines


@contextmanager
def byte_bar(
    title: str, *, sized: bool = True, lines: bool = False, at_once: bool = False
) -> Iterator[Callable[[int, int | None], None]]:
    """Yields a function of (bytes done, total). `sized`: the total is known; else it is None. The bar is shown at the
    first call, so that none precedes a refusal, or from the beginning (`at_once`). `lines`: without a terminal, a line
    after a second, and then each 1.5 s."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        FileSizeColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    began, shown = time.monotonic(), ProgressLines()
    size, left = (DownloadColumn(), TimeRemainingColumn()) if sized else (FileSizeColumn(), TimeElapsedColumn())
    columns = (TextColumn(title), BarColumn(), size, TransferSpeedColumn(), left)
    progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    task = progress.add_task(title, total=None)
    with ExitStack() as shown_bar:
        if at_once:
            shown_bar.enter_context(progress)

        def show(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=None if total is None else max(done, total))
            if not (progress.disable or progress.live.is_started):
                shown_bar.enter_context(progress)
            passed_s = time.monotonic() - began
            if lines and progress.disable and passed_s >= NOTICE_S:
                shown.show(f"palisade: {title}: {done:,} of {max(done, total or 0):,} bytes", passed_s)

        yield show
