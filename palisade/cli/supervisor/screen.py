"""The output of `palisade up`: a live table on a terminal, plain lines elsewhere, JSON lines with --json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from palisade.cli.status_table import status_table
from palisade.cli.supervisor.events import SupervisorEvent
from palisade.service.status import changes_of, line_of


class ClusterScreen(Protocol):
    """Entered before the first event, left after the last one."""

    def __enter__(self) -> ClusterScreen: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, event: SupervisorEvent) -> None: ...
    def status(self, rows: Sequence[dict[str, Any]]) -> None: ...


class ScreenLines:
    """One line per event. A status line follows each change of a role, the leader, readiness or the members."""

    def __init__(self, out: IO[str], as_json: bool) -> None:
        self._out = out
        self._as_json = as_json
        self._seen: Any = None
        self._tenth = -1

    def __enter__(self) -> ScreenLines:
        return self

    def __exit__(self, *exc: object) -> None:
        self._out.flush()

    def show(self, event: SupervisorEvent) -> None:
        if self._as_json:
            self._print(json.dumps(event.to_json()))
        elif event.name != "demo" or self._is_tenth(event):
            self._print(event.text)

    def status(self, rows: Sequence[dict[str, Any]]) -> None:
        seen = changes_of(rows)
        if seen == self._seen:
            return
        self._seen = seen
        if self._as_json:
            self._print(json.dumps({"event": "status", "nodes": list(rows)}))
        else:
            self._print("status: " + "; ".join(map(line_of, rows)))

    def _is_tenth(self, event: SupervisorEvent) -> bool:
        """Whether another tenth of the demo catalog was loaded."""
        tenth = int(10 * event.fields["done"] / max(1, event.fields["total"]))
        fresh, self._tenth = tenth != self._tenth, tenth
        return fresh

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)


class LiveTable:
    """Events scroll above a table of the nodes; a progress bar is shown while the demo catalog is loaded. Until there
    is either, nothing is drawn: an empty table would leave an empty line before the error of a refused start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=False)
        self._progress = Progress(
            TextColumn("demo catalog"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
        )
        self._task: TaskID | None = None
        self._table: RenderableType = ""

    def __enter__(self) -> LiveTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, event: SupervisorEvent) -> None:
        if event.name == "demo":
            if self._task is None:
                self._task = self._progress.add_task("demo", total=event.fields["total"])
            self._progress.update(self._task, completed=event.fields["done"], total=event.fields["total"])
            self._draw()
            return
        if event.name.startswith("demo-"):
            self._task = None
            self._draw()
        self._console.print(event.text, markup=False, highlight=False, soft_wrap=True)

    def status(self, rows: Sequence[dict[str, Any]]) -> None:
        self._table = status_table(rows, self._console.width)
        self._draw()

    def _draw(self) -> None:
        parts = [self._table] if self._task is None else [self._table, self._progress.get_renderable()]
        self._live.start()
        self._live.update(Group(*parts))


def screen_for(out: IO[str], as_json: bool) -> ClusterScreen:
    if not as_json and out.isatty():
        return LiveTable(Console(file=out))
    return ScreenLines(out, as_json)
