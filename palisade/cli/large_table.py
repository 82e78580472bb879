"""A table of many rows, in the look of `rich.table.Table`, which takes about half a millisecond for each row.

Text of one cell per character is padded, cut and folded here; only other text is wrapped by rich.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from rich.box import HEAVY_HEAD, Box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

CHUNK_ROWS = 100
PADDING = 2
ELLIPSIS = "…"


class LargeTable:
    """`widths`: of the shown columns, by their index. `cut`: indexes of the columns whose text is cut; others wrap."""

    def __init__(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], widths: Mapping[int, int], cut: Collection[int]
    ) -> None:
        self.caption: str | None = None
        self._header, self._rows, self._cut = header, rows, cut
        self._widths = widths

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        box = HEAVY_HEAD.substitute(options)
        outer = [width + PADDING for width in self._widths.values()]
        titles = [self._cell(console, place, self._header[place]) for place in self._widths]
        yield Segment(f"{box.get_top(outer)}\n")
        for line in self._joined(titles, box.head_left, box.head_vertical, box.head_right):
            yield Segment(line, Style(bold=True))
        yield Segment(f"{box.get_row(outer, 'head')}\n")
        for first in range(0, len(self._rows), CHUNK_ROWS):
            yield Segment("".join(self._lines(console, box, self._rows[first : first + CHUNK_ROWS])))
        yield Segment(f"{box.get_bottom(outer)}\n")
        if self.caption:
            yield Segment(f"{self.caption}\n", Style(dim=True, italic=True))

    def _lines(self, console: Console, box: Box, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        for row in rows:
            cells = [self._cell(console, place, row[place]) for place in self._widths]
            yield from self._joined(cells, box.mid_left, box.mid_vertical, box.mid_right)

    def _joined(self, cells: Sequence[Sequence[str]], left: str, between: str, right: str) -> Iterator[str]:
        """The lines of a row. A cell with fewer lines than the others is filled with blanks."""
        middle = f" {between} "
        if max(map(len, cells)) == 1:
            yield f"{left} {middle.join([cell[0] for cell in cells])} {right}\n"
            return
        widths = self._widths.values()
        for parts in itertools.zip_longest(*cells):
            texts = [" " * width if part is None else part for part, width in zip(parts, widths, strict=True)]
            yield f"{left} {middle.join(texts)} {right}\n"

    def _cell(self, console: Console, place: int, text: str) -> Sequence[str]:
        """The lines of a cell, each as wide as the column."""
        width, cuts = self._widths[place], place in self._cut
        if text.isprintable() and (text.isascii() or cell_len(text) == len(text)):
            if len(text) <= width:
                return (text.ljust(width),)
            if cuts:
                return (text[: width - 1] + ELLIPSIS,)
            if " " not in text:
                return list(_sliced(folded(text, width), width))
        wrapped = Text(text if cuts else folded(text, width)).wrap(
            console, width, overflow="ellipsis" if cuts else "fold", no_wrap=cuts
        )
        return [set_cell_size(line.plain, width) for line in wrapped] or (" " * width,)


def _sliced(text: str, width: int) -> Iterator[str]:
    for line in text.split("\n"):
        for start in range(0, len(line), width):
            yield line[start : start + width].ljust(width)


def folded(text: str, width: int) -> str:
    """A name in lines that end after a slash where possible. A text with blanks is returned as it is."""
    if len(text) <= width or " " in text:
        return text
    lines = [""]
    for part in text.replace("/", "/\n").split("\n"):
        if len(lines[-1]) + len(part) <= width:
            lines[-1] += part
        else:
            lines.append(part)
    return "\n".join(line for line in lines if line)
