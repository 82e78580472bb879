"""A progress bar for long work on bytes, on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_bar(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """What it yields takes the bytes done and about how many there are."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title, total=None)

        def show(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=None if total is None else max(done, total))

        yield show
