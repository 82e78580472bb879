"""The status of nodes for people: a table, and one line each. A row is what /v1/status says of a node, with its url."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

Row = Mapping[str, Any]
NOTHING = "-"
COLUMNS = (
    ("node", "id"),
    ("role", "role"),
    ("term", "term"),
    ("revision (LM)", "revision"),
    ("oldest (MM)", "minimal_revision"),
    ("applied", "applied_index"),
    ("commit", "commit_index"),
    ("ready", "ready"),
    ("url", "url"),
)
RIGHT = {"term", "revision", "minimal_revision", "applied_index", "commit_index"}


def status_table(rows: Sequence[Row]) -> Table:
    table = Table(title=None, header_style="bold")
    for title, field in COLUMNS:
        table.add_column(title, justify="right" if field in RIGHT else "left", no_wrap=True)
    for row in rows:
        style = None if row.get("ready") else "red"
        table.add_row(*(cell(row, field) for _, field in COLUMNS), style=style)
    return table


def cell(row: Row, field: str) -> str:
    """A field as people read it; numbers with thousands separated."""
    value = row.get(field)
    if field == "ready":
        return "yes" if value else "no"
    if value is None:
        return "silent" if field == "role" else NOTHING
    if field == "id" and row.get("role") == "leader":
        return f"{value} *"
    return f"{value:,}" if isinstance(value, int) and field != "term" else str(value)


def line_of(row: Row) -> str:
    """'n1 leader term 2 revision 5,532 ready'."""
    if row.get("role") is None:
        return f"{row.get('id')} silent"
    ready = "ready" if row.get("ready") else "not ready"
    return f"{row.get('id')} {row['role']} term {row.get('term')} revision {cell(row, 'revision')} {ready}"


def changes_of(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """What is worth a new line when it changes; revisions are not."""
    return [tuple(row.get(field) for field in ("id", "role", "term", "ready")) for row in rows]
