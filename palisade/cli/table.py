"""Tables that fit the width of the terminal. The first column identifies a row and is never cut.

Columns that do not fit are shown in further tables below, each with the first column (`tables`), or are omitted in the
order of their importance and named in the caption (`kept`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palisade.cli.large_table import LargeTable, folded

if TYPE_CHECKING:
    from rich.table import Table

FRAME = 3
"""Characters per column besides its content: two blanks and a border. The table has one more border at its end."""
ROWS_MAX = 500
"""Maximum rows of one table. A longer list is shown as several tables, each with the titles."""
CUT_MIN, WRAPPED_MIN = 16, 25
"""The minimum width of a column that is cut or wraps. A time in a segment's name has 25 characters with its slash."""


def widths_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column, in terminal cells."""
    from rich.cells import cell_len

    def width_of(text: str) -> int:
        return len(text) if text.isascii() else cell_len(text)

    return [max(map(width_of, column)) for column in zip(header, *rows, strict=True)]


def total(widths: Iterable[int]) -> int:
    found = [FRAME + each for each in widths]
    return sum(found) + 1


def stacked(widths: Sequence[int], width: int) -> list[list[int]]:
    """The columns of each table. All tables begin with column 0; each has at least one other column."""
    groups: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        group = [*groups[-1], column]
        if len(group) > 2 and total(widths[each] for each in group) > width:
            groups.append([0, column])
        else:
            groups[-1] = group
    return groups


def kept(widths: Sequence[int], importance: Sequence[int], width: int) -> list[int]:
    """The columns of one table that is not wider than `width`: the most important ones, in their usual order."""
    found: list[int] = []
    for column in importance:
        if not found or total(widths[each] for each in (*found, column)) <= width:
            found.append(column)
    return sorted(found)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """`shown`: for each of the tables that together show a row, the width of each of its columns by the column's index.
    `cut`: the column whose text is cut. `omitted`: the titles of the columns that are not shown."""

    header: Sequence[str]
    shown: Sequence[Mapping[int, int]]
    cut: str | None
    omitted: Sequence[str]

    def tables(self, rows: Sequence[Sequence[str]]) -> Iterator[Table | LargeTable]:
        """The tables for these rows, which may be a part of all rows."""
        large = len(rows) > ROWS_MAX
        cut = {self.header.index(self.cut)} if self.cut else set()
        for first in range(0, max(1, len(rows)), ROWS_MAX):
            part = rows[first : first + ROWS_MAX]
            found: list[Table | LargeTable] = [
                LargeTable(self.header, part, each, cut) if large else made(self.header, part, each, self.cut)
                for each in self.shown
            ]
            if first + ROWS_MAX >= len(rows):
                found[-1].caption = omitted_text(self.omitted)
            yield from found


def layout(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    wraps: Collection[str] = (),
    cut: str | None = None,
    omits: Collection[str] = (),
) -> TableLayout:
    """One table if it fits, else several with the same rows; after `ROWS_MAX` rows the next ones.

    Columns that become narrower first: those in `wraps`, whose text continues on further lines, and `cut`, whose text
    is shortened. If one table is still too wide, columns without any text are omitted, then those in `omits`, which the
    caption names. The first column is always shown."""
    header = list(header)
    widths = widths_of(header, rows)
    flexible = {header.index(each) for each in (*wraps, *([cut] if cut else ()))}
    least = [
        min(each, (CUT_MIN if header[place] == cut else WRAPPED_MIN) if place in flexible else each)
        for place, each in enumerate(widths)
    ]
    columns = filled = list(range(len(header)))
    if total(least) > width:
        columns = filled = [0, *(with_text(rows, columns[1:]) or columns[1:])]
        if total(least[place] for place in columns) > width:
            columns = [place for place in columns if header[place] not in omits]
    least = limited([least[place] for place in columns], width)
    groups = [[columns[each] for each in group] for group in stacked(least, width)]
    narrow = dict(zip(columns, least, strict=True))
    shown = [grown({place: narrow[place] for place in group}, widths, width) for group in groups]
    return TableLayout(header, shown, cut, [header[place] for place in filled if place not in columns])


def with_text(rows: Sequence[Sequence[str]], columns: Iterable[int]) -> list[int]:
    """The columns that have a text in any row."""
    return [place for place in columns if any(row[place] for row in rows)]


def limited(widths: Sequence[int], width: int) -> list[int]:
    """No column is so wide that it does not fit next to the first one."""
    room = width - 1 - FRAME
    first = min(widths[0], room)
    others = [min(each, max(1, room - FRAME - first)) for each in widths[1:]]
    if others and min(others) < min(CUT_MIN, *widths[1:]):
        first = max(1, room // 2)
        others = [min(each, room - FRAME - first) for each in widths[1:]]
    return [first, *others]


def grown(narrow: Mapping[int, int], wanted: Sequence[int], width: int) -> dict[int, int]:
    """The widths of the columns of one table that uses the terminal: the column that lacks most grows first."""
    found = dict(narrow)
    for _ in range(width - total(found.values())):
        lacking = max(found, key=lambda place: wanted[place] / found[place])
        if found[lacking] >= wanted[lacking]:
            break
        found[lacking] += 1
    return found


def omitted_text(titles: Sequence[str]) -> str | None:
    return f"omitted here: {', '.join(titles)}" if titles else None


def made(header: Sequence[str], rows: Sequence[Sequence[str]], widths: Mapping[int, int], cut: str | None) -> Table:
    """A table of the columns in `widths`. Text that is too long is cut in the column `cut`, and wraps in others."""
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", caption_justify="left")
    for column, width in widths.items():
        cuts = header[column] == cut
        table.add_column(header[column], width=width, no_wrap=cuts, overflow="ellipsis" if cuts else "fold")
    for row in rows:
        cells = (row[each] if header[each] == cut else folded(row[each], width) for each, width in widths.items())
        table.add_row(*map(Text, cells))
    return table
