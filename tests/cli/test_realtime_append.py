"""palisade segments realtime append: rows that the segment has already are skipped, and that is shown (issue 16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palisade.cli.realtime import fill
from palisade.wire.segment_errors import BadSegment


class Writer:
    """Of a segment that has these rows."""

    segment, node = "clicks/0", "n1"

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.appended: list[Any] = []
        self.is_closed = False

    async def append(self, rows: list[Any]) -> None:
        self.appended += rows
        self.rows += len(rows)

    async def close(self) -> None:
        self.is_closed = True


def lines(tmp_path: Path, rows: int) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"[{number}]\n" for number in range(rows)))
    return file


async def test_append_shows_how_many_rows_it_skipped(tmp_path: Path) -> None:
    """Another file under the same --writer lost its first rows, and nothing said so."""
    writer: Any = Writer(2)
    found = await fill(writer, lines(tmp_path, 3), False)
    assert (writer.appended, found["rows"], found["skipped"]) == ([[2]], 3, 2)


async def test_file_with_fewer_rows_than_the_segment_is_refused(tmp_path: Path) -> None:
    writer: Any = Writer(2)
    with pytest.raises(BadSegment, match=r"clicks/0 has 2 rows already and .*rows.jsonl has 1: give a file that"):
        await fill(writer, lines(tmp_path, 1), True)
    assert (writer.appended, writer.is_closed) == ([], False)
