"""scenarios.md, "Everywhere": read-only disk. For every file of a node, the error names it and the remedy.

As after an error, when the system has remounted a disk read-only: existing data can still be read.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palisade.metastore.lmdb_store import LmdbStore
from palisade.node.data_dir import claim_data_dir
from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.vault.opening import open_vault


@pytest.fixture
def remount(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on every write fails."""
    opened, opened_file = os.open, io.open

    def refused(path: Any) -> OSError:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def descriptor(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise refused(path)
        return opened(path, flags, *rest, **more)

    def file(path: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if set(mode) & set("wax+"):
            raise refused(path)
        return opened_file(path, mode, *rest, **more)

    def remounted() -> None:
        monkeypatch.setattr(os, "open", descriptor)
        monkeypatch.setattr(io, "open", file)
        monkeypatch.setattr(builtins, "open", file)

    return remounted


def claim(path: Path) -> None:
    claim_data_dir(path, cluster="c", node="n1")


OWNERS: dict[str, Callable[[Path], Any]] = {"journal": LmdbJournal, "store": LmdbStore, "vault": open_vault}


@pytest.mark.parametrize("owner", OWNERS)
def test_node_on_read_only_disk_is_refused_and_unchanged(
    tmp_path: Path, remount: Callable[[], None], owner: str
) -> None:
    OWNERS[owner](tmp_path / "data").close()
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))}
    remount()
    with pytest.raises(Exception, match=r"can't be (used|opened): .*[Rr]ead-only file system.*Make it writable"):
        OWNERS[owner](tmp_path / "data")
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))} == before


def test_new_folder_is_refused(tmp_path: Path, remount: Callable[[], None]) -> None:
    remount()
    with pytest.raises(Exception, match=r"node\.json can't be written: read-only file system; make it writable"):
        claim(tmp_path)


def test_read_only_folder_of_the_node_is_readable(tmp_path: Path, remount: Callable[[], None]) -> None:
    claim(tmp_path)
    remount()
    claim(tmp_path)
