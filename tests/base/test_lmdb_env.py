"""LMDB environments are opened in one place (issue 15): which error means damage, and which an unusable file."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import lmdb
import pytest

from palisade.base.lmdb_env import DATA, OPENS_MAX, closed_on_error, open_env


class Damaged(Exception):
    """Made of an error of LMDB."""


class Unusable(Exception):
    """Made of a text."""


def opened(directory: Path) -> Any:
    return open_env(directory, 2, 1 << 20, damaged=Damaged, unusable=Unusable)


def test_created_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    with opened(tmp_path):
        assert stat.S_IMODE((tmp_path / DATA).stat().st_mode) == 0o600


def test_file_with_other_content_is_damaged(tmp_path: Path) -> None:
    (tmp_path / DATA).write_bytes(b"x" * 8192)
    with pytest.raises(Damaged) as found:
        opened(tmp_path)
    assert isinstance(found.value.__cause__, lmdb.InvalidError)


def test_directory_that_cannot_hold_the_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / DATA).mkdir()
    with pytest.raises(Unusable, match=f"{DATA} can't be opened: .*choose another directory"):
        opened(tmp_path)


def test_file_whose_size_fits_no_map_is_unusable_after_some_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a loop without an end, nor a file that is refused because another process writes to it."""
    tries = 0

    def resized(*_: Any, **__: Any) -> Any:
        nonlocal tries
        tries += 1
        raise lmdb.MapResizedError("mdb_txn_begin", "grew")

    monkeypatch.setattr(lmdb, "open", resized)
    with pytest.raises(Unusable, match="grew"):
        opened(tmp_path)
    assert tries == OPENS_MAX


def test_environment_is_closed_and_the_error_translated_if_its_tables_cannot_be_opened(tmp_path: Path) -> None:
    env = opened(tmp_path)
    with pytest.raises(Damaged), closed_on_error(env, Damaged):
        env.open_db(b"missing", create=False)
    with pytest.raises(lmdb.Error, match="closed"):
        env.stat()


def test_environment_is_closed_if_its_check_refuses_it(tmp_path: Path) -> None:
    env = opened(tmp_path)
    with pytest.raises(Unusable, match="foreign"), closed_on_error(env, Damaged):
        raise Unusable("foreign")
    with pytest.raises(lmdb.Error, match="closed"):
        env.stat()
