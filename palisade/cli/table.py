"""Tables that fit the width of the terminal. The first column identifies a row and is never cut.

Columns that do not fit are shown in further tables below, each with the first column (`tables`), or are omitted in the
order of their importance and named in the caption (`most_important`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

FRAME = 3
"""Characters per column besides its content: two blanks and a border. The table has one more border at its end."""
FLEXIBLE_MIN = 16


def widths_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column, in terminal cells."""
    from rich.cells import cell_len

    return [max(cell_len(each) for each in column) for column in zip(header, *rows, strict=True)]


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


def tables(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    flexible: str | None = None,
    *,
    wraps: bool = False,
) -> list[Table]:
    """One table if it fits, else several with the same rows. `flexible`: the column that becomes narrower first; its
    text is shortened, or continues on further lines (`wraps`)."""
    widths = widths_of(header, rows)
    excess = total(widths) - width
    if flexible is not None and excess > 0:
        place = list(header).index(flexible)
        widths[place] = max(min(FLEXIBLE_MIN, widths[place]), widths[place] - excess)
    room = width - 1 - FRAME
    widths[0] = min(widths[0], room)
    others = [min(each, max(1, room - FRAME - widths[0])) for each in widths[1:]]
    if others and min(others) < min(FLEXIBLE_MIN, *widths[1:]):
        widths[0] = max(1, room // 2)
        others = [min(each, room - FRAME - widths[0]) for each in widths[1:]]
    widths = [widths[0], *others]
    wrapped = {0, list(header).index(flexible)} if wraps and flexible is not None else {0}
    return [made(header, rows, columns, widths, wrapped) for columns in stacked(widths, width)]


def made(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: Sequence[int],
    widths: Sequence[int],
    wrapped: Collection[int],
) -> Table:
    """Text that is too long wraps in the `wrapped` columns; in other columns it is cut, with an ellipsis."""
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold")
    for column in columns:
        table.add_column(
            header[column],
            width=widths[column],
            no_wrap=column not in wrapped,
            overflow="fold" if column in wrapped else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(row[column]) for column in columns))
    return table
