"""What the commands print for people: a table on a terminal, fields separated by tabs for pipes; JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

VALUE_WIDTH = 60


def print_json(shape: Any) -> None:
    print(json.dumps(shape, ensure_ascii=False), flush=True)


def print_rows(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """`header` is left away where the output is no terminal."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(map(str, row)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, header_style="bold")
    for row in rows:
        table.add_row(*(shorten(str(each)) for each in row))
    Console().print(table, markup=False)


def readable(value: bytes) -> str:
    """On one line, whatever it holds: control characters and bytes that are no text are escaped."""
    text = value.decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shorten(text: str) -> str:
    return text if len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 1]}…"


def print_bytes(value: bytes) -> None:
    """The value as it is, with a line end on a terminal."""
    sys.stdout.flush()
    sys.stdout.buffer.write(value + (b"\n" if sys.stdout.isatty() and not value.endswith(b"\n") else b""))
    sys.stdout.buffer.flush()
