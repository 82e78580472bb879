"""Shows on stderr what a command waits for, from a second after the start of its process.

On a terminal: one line with the time of the wait, which is updated each second and erased at the end, and before other
output. Elsewhere: lines, less than 2 s apart for ten seconds, then at growing intervals.
With --json they are shown only on a terminal; elsewhere stderr has at most one object for an error.

A command that sends many requests shows its progress in the same way, but its lines stay less than 2 s apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import click

from palisade.base.recurring_line import RecurringLine

NOTICE_S = 1.0
"""Silence of a command, counted from the start of its process."""
NOTICE_S_MIN = 0.2
"""Minimum silence of a wait, even if the process took long to start."""
LOOK_S = 0.3
LINES_S = 1.4
"""Time between two lines."""
DEFAULT_COLUMNS = 80
"""A terminal without a size, such as one of `script` or of a container, reports 0."""
CLEAR_BELOW = "\r\x1b[J"


def silence_s() -> float:
    """The remaining silence of the running command."""
    context = click.get_current_context(silent=True)
    age_s = context.find_root().obj if context is not None else None
    return max(NOTICE_S - (age_s() if age_s is not None else 0.0), min(NOTICE_S_MIN, NOTICE_S))


def late(asked: Mapping[str, float], now: float) -> list[str]:
    """The nodes to name in a notice: those whose request has had no answer for `NOTICE_S`. Others may only be slow, as
    directly after their start. `asked`: node -> the time of its request."""
    return [node for node, asked_at in asked.items() if now - asked_at >= NOTICE_S]


@contextlib.asynccontextmanager
async def waiting(why: Callable[[], str | None], *, only_terminal: bool = False) -> AsyncIterator[Callable[[], None]]:
    """`why`: what the command waits for at the moment; None if it does not wait. `only_terminal`: show nothing
    elsewhere. Yields the function to call before other output: it erases the line."""
    terminal = sys.stderr.isatty()
    if only_terminal and not terminal:
        yield nothing_shown
        return

    def line() -> str | None:
        text = why()
        return None if text is None else f"palisade: waiting: {' '.join(text.split())}"

    notice = TerminalNotice() if terminal else LineNotice()
    async with _shown(line, notice):
        yield notice.end


def nothing_shown() -> None:
    """Does nothing: no notice was shown, so none has to be erased."""


@contextlib.asynccontextmanager
async def progressing(line: Callable[[], str], *, only_terminal: bool = False) -> AsyncIterator[None]:
    """Shows the progress of a long command. `only_terminal`: as in `waiting`."""
    erased = sys.stderr.isatty()
    if only_terminal and not erased:
        yield
        return
    async with _shown(line, TerminalNotice() if erased else ProgressLines()):
        yield


@contextlib.contextmanager
def progressing_in_thread(line: Callable[[], str], *, only_terminal: bool = False) -> Iterator[None]:
    """As `progressing`, for work without an event loop: a thread calls `line`."""
    erased = sys.stderr.isatty()
    if only_terminal and not erased:
        yield
        return
    notice, silent_s, ends = TerminalNotice() if erased else ProgressLines(), silence_s(), threading.Event()
    began = time.monotonic()

    def show() -> None:
        ends.wait(silent_s)
        while not ends.is_set():
            notice.show(line(), time.monotonic() - began)
            ends.wait(min(NOTICE_S, LOOK_S))

    thread = threading.Thread(target=show, name="palisade-progress-lines", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        notice.end()


@contextlib.asynccontextmanager
async def _shown(line: Callable[[], str | None], notice: Notice) -> AsyncIterator[None]:
    showing = asyncio.ensure_future(_show(line, notice))
    try:
        yield
    finally:
        showing.cancel()
        notice.end()


async def _show(line: Callable[[], str | None], notice: Notice) -> None:
    began = time.monotonic()
    await asyncio.sleep(silence_s())
    while True:
        notice.show(line(), time.monotonic() - began)
        await asyncio.sleep(min(NOTICE_S, LOOK_S))


class LineNotice:
    """Lines while the command waits: less than 2 s apart for ten seconds, then at growing intervals."""

    def __init__(self) -> None:
        self._line = RecurringLine(first_s=LINES_S, steady_s=10.0, counts=False)

    def show(self, text: str | None, waited_s: float) -> None:
        if text is None:
            self._line.over("", waited_s)
            return
        line = self._line.holds(text, waited_s)
        if line is not None:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        pass


class ProgressLines:
    """Lines less than 2 s apart while the command runs, because each line has new figures."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def show(self, text: str | None, waited_s: float) -> None:
        if text is None or waited_s < self._due_s:
            return
        self._due_s = waited_s + LINES_S
        print(with_time(text, waited_s), file=sys.stderr, flush=True)

    def end(self) -> None:
        pass


class TerminalNotice:
    """One text, which replaces the previous one and may take several rows of the terminal."""

    def __init__(self) -> None:
        self._shown, self._since_s = "", 0.0

    def show(self, text: str | None, waited_s: float) -> None:
        if text is None:
            self._since_s = waited_s
        wanted = "" if text is None else with_time(text, waited_s - self._since_s)
        if wanted == self._shown:
            return
        self.end()
        self._shown = wanted
        print(wanted, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(erasure_of(self._shown, _columns()), end="", file=sys.stderr, flush=True)
            self._shown = ""


Notice = LineNotice | ProgressLines | TerminalNotice


def with_time(text: str, waited_s: float) -> str:
    """`text` with the elapsed time, which is omitted in the first second."""
    return f"{text} ({waited_s:.0f} s)" if waited_s >= 1 else text


def erasure_of(text: str, columns: int) -> str:
    """The control characters that erase `text` from a terminal, if nothing was written after it."""
    rows_above = (len(text) - 1) // columns
    return (f"\x1b[{rows_above}A" if rows_above > 0 else "") + CLEAR_BELOW


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, ValueError):
        return DEFAULT_COLUMNS
