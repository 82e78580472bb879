"""Prints the keys of a range in the parts in which they arrive, in the format of the command.

A range of one part is printed as other results are. The columns of a longer one have the widths of the first part.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from palisade.cli.output import work_done
from palisade.cli.printing import cells_of, print_csv, readable
from palisade.metastore.results import KeyValue, RangeResult
from palisade.wire import json_results as shapes

if TYPE_CHECKING:
    from rich.console import Console

    from palisade.cli.session import CliSession
    from palisade.cli.table import TableLayout

HEADER = ("key", "value", "version", "revision")
CUT = "value"
SPARE = ("x", "x", "x")
"""Cells of a row that is only measured: without it, a column without text in the first part would be omitted."""
JSON_KEYS = 1_000
"""Keys that are converted to JSON at a time."""


class RangeOutput:
    """`limit`: the maximum number of keys in all parts; 0: no limit. `printed`: the number of printed keys. `count`:
    the number of keys in the range, known only with a limit, because counting many keys takes long."""

    def __init__(self, session: CliSession, limit: int) -> None:
        self._session, self._limit = session, limit
        self._begun = False
        self._console: Console | None = None
        self._layout: TableLayout | None = None
        self.printed = self.count = 0
        self.more = False

    def show(self, page: RangeResult) -> None:
        """Print the next part."""
        work_done()
        received = self.printed + len(page.kvs)
        last = not page.more or not page.kvs or 0 < self._limit <= received
        if self._begun:
            self._continue(page.kvs)
        else:
            self.count = page.count
            if last:
                self._print_whole(page)
            else:
                self._begin(page)
        if last and self._begun and self._session.as_json:
            end = json.dumps({"count": self.count if self._limit else received, "more": page.more})
            print(f"], {end.removeprefix('{')}")
        self._begun = True
        self.printed, self.more = received, page.more
        sys.stdout.flush()

    def _print_whole(self, page: RangeResult) -> None:
        shape = shapes.range_shape(page) if self._session.as_json else None
        self._session.rows(shape, HEADER, [row(kv) for kv in page.kvs], cut=CUT)

    def _begin(self, page: RangeResult) -> None:
        if self._session.as_json:
            print(f'{{"revision": {page.revision}, "kvs": [', end="")
            self._print_json(page.kvs, "")
        elif self._session.as_csv:
            print_csv(HEADER, map(row, page.kvs))
        elif sys.stdout.isatty():
            self._print_tables(page.kvs, page.revision)
        else:
            self._print_lines((HEADER, *map(row, page.kvs)))

    def _continue(self, kvs: Sequence[KeyValue]) -> None:
        if self._session.as_json:
            self._print_json(kvs, ", ")
        elif self._session.as_csv:
            print_csv((), map(row, kvs))
        elif sys.stdout.isatty():
            self._print_tables(kvs, 0)
        else:
            self._print_lines(map(row, kvs))

    def _print_json(self, kvs: Sequence[KeyValue], before: str) -> None:
        for first in range(0, len(kvs), JSON_KEYS):
            part = [shapes.key_value(kv) for kv in kvs[first : first + JSON_KEYS]]
            print(before + json.dumps(part, ensure_ascii=False)[1:-1], end="")
            before = ", "

    def _print_lines(self, rows: Iterable[Sequence[Any]]) -> None:
        print("\n".join(["\t".join(map(str, each)) for each in rows]))

    def _print_tables(self, kvs: Sequence[KeyValue], revision: int) -> None:
        """`revision`: of the range, the widest number that a row can have."""
        from rich.console import Console

        from palisade.cli.table import layout

        cells = cells_of(HEADER, map(row, kvs), CUT)
        if self._layout is None or self._console is None:
            self._console = Console()
            self._layout = layout(HEADER, [*cells, [*SPARE, str(revision)]], self._console.width, cut=CUT)
        for table in self._layout.tables(cells):
            self._console.print(table, markup=False, crop=False)


def row(kv: KeyValue) -> list[Any]:
    return [readable(kv.key), readable(kv.value), kv.version, kv.mod_revision]
