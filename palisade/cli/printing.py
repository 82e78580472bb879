"""Output of the commands: a table on a terminal, a header and rows with tabs in a pipe, CSV, JSON."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

VALUE_WIDTH = 60


def print_json(shape: Any) -> None:
    print(json.dumps(shape, ensure_ascii=False), flush=True)


def print_rows(
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    wraps: Collection[str] = (),
    cut: str | None = None,
    omits: Collection[str] = (),
) -> None:
    """On a terminal in its width; `wraps`, `cut`, `omits`: as of `palisade.cli.table.layout`."""
    if not sys.stdout.isatty():
        for row in (header, *rows):
            print("\t".join(map(str, row)))
        return
    from rich.console import Console

    from palisade.cli.table import layout

    console = Console()
    cells = cells_of(header, rows, cut)
    for table in layout(header, cells, console.width, wraps=wraps, cut=cut, omits=omits).tables(cells):
        console.print(table, markup=False, crop=False)


def cells_of(header: Sequence[str], rows: Iterable[Sequence[Any]], cut: str | None) -> list[list[str]]:
    """The texts of a table, those of the column `cut` shortened."""
    return [
        [shorten(str(each)) if title == cut else str(each) for title, each in zip(header, row, strict=True)]
        for row in rows
    ]


def print_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """CSV of RFC 4180, with a header unless that is empty, but with LF as the line end."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if header:
        writer.writerow(header)
    writer.writerows(rows)


def readable(value: bytes) -> str:
    """A key or value on one line: text, in which control characters are escaped, else hexadecimal with 0x."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shorten(text: str) -> str:
    return text if len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 1]}…"


def print_bytes(value: bytes) -> None:
    """Prints the value unchanged; on a terminal followed by a line end."""
    sys.stdout.flush()
    sys.stdout.buffer.write(value + (b"\n" if sys.stdout.isatty() and not value.endswith(b"\n") else b""))
    sys.stdout.buffer.flush()
