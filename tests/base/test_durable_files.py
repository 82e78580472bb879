"""In which order a file becomes durable: its content, its name, and its directory last (issue 16)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from palisade.base.durable_files import publish, replace_file
from palisade.node import backup_file
from palisade.node.backup_file import BackupFile

Event = tuple[str, str]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """(sync or rename, of which file), in order."""
    found: list[Event] = []
    fsync, replace = os.fsync, Path.replace

    def synced(file: int) -> None:
        found.append(("sync", Path(f"/proc/self/fd/{file}").readlink().name))
        fsync(file)

    def renamed(self: Path, target: Path) -> Path:
        found.append(("rename", target.name))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    return found


def by_publish(path: Path) -> None:
    partial = path.with_name("partial")
    partial.write_bytes(b"content")
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    publish(partial, path)


def by_replace_file(path: Path) -> None:
    replace_file(path, b"content", path.with_name("partial"))


@pytest.mark.parametrize("write", [by_publish, by_replace_file])
def test_file_is_synced_before_it_has_its_name_and_the_directory_after(
    tmp_path: Path, events: list[Event], write: Callable[[Path], None]
) -> None:
    write(tmp_path / "file")
    assert events == [("sync", "partial"), ("rename", "file"), ("sync", tmp_path.name)]


def test_backup_is_durable_under_its_name_when_it_is_finished(
    tmp_path: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power right after the command must not take the name away again."""
    checked: list[Path] = []
    monkeypatch.setattr(backup_file, "verify_file", lambda path, progress: checked.append(path))
    file = BackupFile(tmp_path / "b")
    file.begin()
    file.write(b"content")
    file.finish(lambda done, total: None)
    assert events == [("sync", "b.partial"), ("rename", "b"), ("sync", tmp_path.name)]
    assert checked == [tmp_path / "b.partial"]
    assert (tmp_path / "b").read_bytes() == b"content"
