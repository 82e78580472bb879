"""The data set as a source: read once, again when it has changed, and plain words where it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from palisade.catalog.demo.tables import WEATHER
from palisade.segments import dataset_source as module
from palisade.segments.dataset_source import DatasetSource
from palisade.segments.names import Wanted
from palisade.segments.sources import SourceFailed
from palisade.segments.verification import version_of
from tests.support.segment_names import name

DAY = name(1, "weather")
ANY = Wanted("rows-sha256:" + "0" * 64, 1)


def write(folder: Path, *days: int, fill: str = "0") -> None:
    lines = [",".join(WEATHER.header)]
    for day in days:
        known = {"year": "2013", "month": "1", "day": str(day), "time_hour": "2013-01-01T05:00:00Z"}
        lines.append(",".join(known.get(name, fill) for name in WEATHER.header))
    (folder / "weather.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


async def test_day_content_matches_its_digest_in_the_catalog(tmp_path: Path) -> None:
    from palisade.catalog.demo.flights import read_rows
    from palisade.catalog.demo.segments import records_of

    write(tmp_path, 1, 2, 1)
    origin = DatasetSource(tmp_path)
    records = records_of(WEATHER, read_rows(tmp_path, WEATHER))
    assert len(records) == 2
    for record in records:
        assert version_of(await origin.get(str(record.segment), ANY)) == Wanted(record.digest, record.size_bytes)
    origin.close()


async def test_table_is_cached_until_its_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by an end-to-end test: a node that tried again and again kept the old table in memory forever."""
    reads: list[int] = []
    real = module.read_rows
    monkeypatch.setattr(module, "read_rows", lambda *given: (reads.append(1), real(*given))[1])
    write(tmp_path, 1)
    origin = DatasetSource(tmp_path)
    first = await origin.get(DAY, ANY)
    assert await origin.get(DAY, ANY) == first
    assert len(reads) == 1
    write(tmp_path, 1, 2, fill="11")
    assert await origin.get(DAY, ANY) != first
    assert len(reads) == 2
    origin.close()


async def test_missing_data_is_reported(tmp_path: Path) -> None:
    origin = DatasetSource(tmp_path / "nowhere")
    with pytest.raises(SourceFailed, match="is not a folder"):
        await origin.get(DAY, ANY)
    origin = DatasetSource(tmp_path)
    with pytest.raises(SourceFailed, match="missing"):
        await origin.get(DAY, ANY)
    write(tmp_path, 1)
    for missing, said in ((name(2, "weather"), "no data of weather"), (name(1, "ships"), "no segment ships")):
        with pytest.raises(SourceFailed, match=said):
            await origin.get(missing, ANY)
    with pytest.raises(SourceFailed, match="published before segments were Parquet files: run palisade load flights"):
        await origin.get(DAY, Wanted("sha256:" + "0" * 64, 1))
    write(tmp_path, 1, fill="x")
    with pytest.raises(SourceFailed, match=r"a row of weather is invalid: .*x"):
        await origin.get(DAY, ANY)
    (tmp_path / "weather.csv").write_text(",".join(WEATHER.header) + "\n1,2\n", encoding="utf-8")
    with pytest.raises(SourceFailed, match="2 fields"):
        await origin.get(DAY, ANY)
    origin.close()
