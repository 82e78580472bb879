"""LMDB environments are opened in one place (issue 15): which error means damage, and which an unusable file."""

from __future__ import annotations

import stat
from pathlib import Path
from struct import Struct
from typing import Any

import lmdb
import pytest

from palisade.base.lmdb_env import DATA, closed_on_error, open_env

LAST_PAGE, LAST_PAGE_AT = Struct("=Q"), 136
"""The number of the last page that is used, in each of the two heads of a file."""


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


def test_file_that_names_a_size_which_no_map_has_is_damaged(tmp_path: Path) -> None:
    """LMDB's error is that of a file which has just grown, so it is opened again, but not without end."""
    opened(tmp_path).close()
    head = bytearray((tmp_path / DATA).read_bytes())
    for page in (0, len(head) // 2):
        LAST_PAGE.pack_into(head, page + LAST_PAGE_AT, 1 << 52)
    (tmp_path / DATA).write_bytes(head)
    with pytest.raises(Damaged) as found:
        opened(tmp_path)
    assert isinstance(found.value.__cause__, lmdb.MapResizedError)


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
