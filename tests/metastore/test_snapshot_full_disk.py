"""A full disk at the mark of a received snapshot is reported like every failed write of a store."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from palisade.metastore.store_directory import StoreDirectory
from palisade.metastore.store_errors import StoreFailed


def test_unwritable_complete_mark_is_a_store_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = StoreDirectory(tmp_path / "store")
    directory.incoming.mkdir()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreFailed, match="complete: no space left on device") as failed:
            directory.mark_complete()
    directory.release()
    assert isinstance(failed.value.__cause__, OSError)
