"""Prints the keys of a range in the parts in which they arrive, in the format of the command.

A range of one part is printed as other results are. The columns of a longer one have the widths of the first part.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
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
PIECE_KEYS = 1_000
"""Keys that are printed before Ctrl-C is looked for again."""


class RangeOutput:
    """`limit`: the maximum number of keys in all parts; 0: no limit. `none`: as of `CliSession.rows`. `printed`: the
    number of printed keys. `count`: the number of keys in the range, known only with a limit, because counting many
    keys takes long."""

    def __init__(self, session: CliSession, limit: int, none: str = "") -> None:
        self._session, self._limit, self._none = session, limit, none
        self._begun = False
        self._console: Console | None = None
        self._layout: TableLayout | None = None
        self.printed = self.count = 0
        self.more = False

    def pieces(self, page: RangeResult) -> Iterator[None]:
        """Print the next part, in pieces, so that the caller can be interrupted between them."""
        work_done()
        received = self.printed + len(page.kvs)
        last = not page.more or not page.kvs or 0 < self._limit <= received
        if not self._begun:
            self.count = page.count
        if last and not self._begun and len(page.kvs) <= PIECE_KEYS:
            self._print_whole(page)
        else:
            for keys in self._print(page):
                sys.stdout.flush()
                self.printed += keys
                yield
            if last and self._session.as_json:
                end = json.dumps({"count": self.count if self._limit else received, "more": page.more})
                print(f"], {end.removeprefix('{')}")
        self._begun = True
        self.printed, self.more = received, page.more
        sys.stdout.flush()

    def _print_whole(self, page: RangeResult) -> None:
        shape = shapes.range_shape(page) if self._session.as_json else None
        self._session.rows(shape, HEADER, [row(kv) for kv in page.kvs], cut=CUT, none=self._none)

    def _print(self, page: RangeResult) -> Iterator[int]:
        """Yields the number of keys of each piece that was printed."""
        if sys.stdout.isatty() and not (self._session.as_json or self._session.as_csv):
            yield from self._print_tables(page.kvs, page.revision)
            return
        if self._session.as_json and not self._begun:
            print(f'{{"revision": {page.revision}, "kvs": [', end="")
        for first in range(0, len(page.kvs), PIECE_KEYS):
            self._print_piece(page.kvs[first : first + PIECE_KEYS], begins=first == 0 and not self._begun)
            yield min(PIECE_KEYS, len(page.kvs) - first)

    def _print_piece(self, kvs: Sequence[KeyValue], *, begins: bool) -> None:
        if self._session.as_json:
            part = json.dumps([shapes.key_value(kv) for kv in kvs], ensure_ascii=False)[1:-1]
            print(part if begins else f", {part}", end="")
        elif self._session.as_csv:
            print_csv(HEADER if begins else (), map(row, kvs))
        else:
            rows = (HEADER, *map(row, kvs)) if begins else map(row, kvs)
            print("\n".join(["\t".join(map(str, each)) for each in rows]))

    def _print_tables(self, kvs: Sequence[KeyValue], revision: int) -> Iterator[int]:
        """`revision`: of the range, the widest number that a row can have."""
        from rich.console import Console

        from palisade.cli.table import layout

        cells = cells_of(HEADER, map(row, kvs), CUT)
        if self._layout is None or self._console is None:
            self._console = Console()
            self._layout = layout(HEADER, [*cells, [*SPARE, str(revision)]], self._console.width, cut=CUT)
        side_by_side = len(self._layout.shown)
        for place, table in enumerate(self._layout.tables(cells), 1):
            self._console.print(table, markup=False, crop=False)
            yield table.row_count if place % side_by_side == 0 else 0


def row(kv: KeyValue) -> list[Any]:
    return [readable(kv.key), readable(kv.value), kv.version, kv.mod_revision]
