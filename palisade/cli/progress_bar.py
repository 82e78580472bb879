"""A progress bar for work on bytes, on stderr if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_bar(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yields a function of (bytes done, approximate total or None)."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title, total=None)

        def show(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=None if total is None else max(done, total))

        yield show
