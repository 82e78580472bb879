"""The table of `palisade status` and `palisade up`, in the width of the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palisade.cli.table import kept, omitted_text, widths_of
from palisade.service.status import COLUMNS, IMPORTANCE, NUMBERS, Row, cells, titles

if TYPE_CHECKING:
    from rich.table import Table


def status_table(rows: Sequence[Row], width: int) -> Table:
    """Nodes that are not ready are red. Columns that do not fit are named in the caption."""
    from rich.table import Table
    from rich.text import Text

    content = [cells(row) for row in rows]
    fields = [field for _, field in COLUMNS]
    columns = kept(widths_of(titles(), content), [fields.index(field) for field in IMPORTANCE], width)
    omitted = [title for place, title in enumerate(titles()) if place not in columns]
    table = Table(header_style="bold", caption=omitted_text(omitted), caption_justify="left")
    for place in columns:
        title, field = COLUMNS[place]
        table.add_column(title, justify="right" if field in NUMBERS else "left", no_wrap=True)
    for row, texts in zip(rows, content, strict=True):
        table.add_row(*(Text(texts[place]) for place in columns), style=None if row.get("ready") else "red")
    return table
