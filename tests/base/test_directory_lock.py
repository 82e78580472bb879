"""The lock of a directory, and the question whether it is held."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from palisade.base import directory_lock
from palisade.base.directory_lock import DirectoryLock, is_locked


def test_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "missing")
    assert not is_locked(tmp_path)
    lock = DirectoryLock(tmp_path, RuntimeError)
    assert is_locked(tmp_path)
    with pytest.raises(RuntimeError, match="in use by another process"):
        DirectoryLock(tmp_path, RuntimeError)
    lock.release()
    assert not is_locked(tmp_path)


def test_question_whether_a_lock_is_held_does_not_refuse_an_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question takes a shared lock for a moment."""
    DirectoryLock(tmp_path, RuntimeError).release()
    asking = [os.open(tmp_path / "LOCK", os.O_RDONLY)]
    fcntl.flock(asking[0], fcntl.LOCK_SH)
    monkeypatch.setattr(os, "sched_yield", lambda: os.close(asking.pop()))
    DirectoryLock(tmp_path, RuntimeError).release()
    assert asking == []


def test_shared_lock_of_another_program_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_lock, "TRIES", 3)
    DirectoryLock(tmp_path, RuntimeError).release()
    other = os.open(tmp_path / "LOCK", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_SH)
    with pytest.raises(RuntimeError, match="is in use by another process"):
        DirectoryLock(tmp_path, RuntimeError)
    os.close(other)
