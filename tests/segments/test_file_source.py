"""The file of a segment's record: data nodes load what `ingest` has written (issue 18)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from palisade.base.file_url import BadFileUrl, path_of_url, url_of_path
from palisade.catalog.segment import SegmentRecord
from palisade.segments import file_source
from palisade.segments.file_source import FileSource, url_of
from palisade.segments.names import Wanted
from palisade.segments.sources import SourceFailed
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.vault import Vault
from tests.support.segment_names import name, segment

WANTED = Wanted("rows:" + "0" * 64, 4)
RECORD = SegmentRecord(segment(1), 1, 2, 4, WANTED.digest, 1)


class OneRow(Vault):
    def __init__(self, value: bytes) -> None:
        super().__init__(MemoryBackend())
        self._value = value

    def get(self, key: bytes) -> object:  # type: ignore[override]
        return type("Item", (), {"value": self._value}) if key == RECORD.segment.key else None


def test_url_is_that_of_the_record() -> None:
    filed = replace(RECORD, url="file:///data/x")
    assert url_of(name(1), OneRow(filed.to_bytes())) == "file:///data/x"
    assert url_of(name(1), OneRow(RECORD.to_bytes())) == ""
    assert url_of(name(1), OneRow(b"{")) == ""
    assert url_of(name(2), OneRow(filed.to_bytes())) == ""


async def test_file_is_read_up_to_the_limit_of_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "SIZE_BYTES_MAX", 4)
    file = tmp_path / "a day.parquet"
    file.write_bytes(b"123456789")
    source = FileSource(url_of_path(str(file)))
    assert source.name.endswith("/a%20day.parquet")
    assert await source.get(name(1), WANTED) == b"12345"


async def test_pipe_folder_missing_file_and_other_scheme_fail_with_the_reason(tmp_path: Path) -> None:
    """A pipe without a writer would block the thread forever."""
    os.mkfifo(tmp_path / "pipe")
    for url, reason in [
        (f"file://{tmp_path}/pipe", "not a regular file"),
        (f"file://{tmp_path}", "is a directory"),
        (f"file://{tmp_path}/none", "no such file or directory"),
        ("s3://bucket/day", "file: URLs only"),
        ("file://server/day", "file: URLs only"),
    ]:
        with pytest.raises(SourceFailed, match=reason):
            await FileSource(url).get(name(1), WANTED)


@pytest.mark.parametrize("path", ["/data", "/data/a b", "/data/ü%20#?", "/"])
def test_paths_round_trip(path: str) -> None:
    assert path_of_url(url_of_path(path)) == path
    assert url_of_path(path).isascii()


@pytest.mark.parametrize(
    "url", ["", "/data", "data", "file:data", "file://h/x", "file:///a?b", "http:///x", "file://["]
)
def test_url_of_no_absolute_path_is_refused(url: str) -> None:
    with pytest.raises(BadFileUrl):
        path_of_url(url)
    with pytest.raises(BadFileUrl):
        url_of_path("data")
