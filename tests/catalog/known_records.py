"""Computes the known records of the demo's segments: `python -m tests.catalog.known_records` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from palisade.catalog.demo import known_records
from palisade.catalog.demo.entries import DemoCatalog, demo_catalog
from palisade.catalog.demo.flights import find_data, read_rows, sha256_of_file, source_name
from palisade.catalog.demo.tables import TABLES

STORED = Path(known_records.__file__).with_name(known_records.NAME)


def computed_catalog() -> DemoCatalog:
    """With nothing known."""
    folder = find_data()
    return demo_catalog(lambda table: read_rows(folder, table), source_name())


def computed(catalog: DemoCatalog) -> dict[str, Any]:
    """Table -> the records of its segments, of the tables by day."""
    return {
        table.name: known_records.stored_form(
            [each for each in catalog.segments if each.segment.data_source == table.name],
            sha256_of_file(find_data(), table),
        )
        for table in TABLES
        if table.key is None
    }


def text_of(found: dict[str, Any]) -> str:
    """A line per day, so that a difference shows which one."""
    tables = []
    for name, form in found.items():
        days = ",\n".join(f"  {json.dumps(day)}: {json.dumps(row)}" for day, row in form["days"].items())
        tables.append(f'{json.dumps(name)}: {{"sha256": {json.dumps(form["sha256"])}, "days": {{\n{days}\n}}}}')
    return f"{{{', '.join(tables)}}}\n"


if __name__ == "__main__":
    STORED.write_text(text_of(computed(computed_catalog())), encoding="utf-8")
