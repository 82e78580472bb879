"""One process per data directory: a lock that ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from raftgroup.errors import DataDirectoryError


class DirectoryLock:
    """Holds `<directory>/LOCK`. Raises DataDirectoryError when another process does, or it can't be written."""

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = os.open(directory / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DataDirectoryError(
                f"the data directory {directory} can't be used: {error.strerror}. Make it writable, or choose another"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise DataDirectoryError(
                f"the data directory {directory} is in use by another process: stop it first, or choose another one"
            ) from error

    def release(self) -> None:
        os.close(self._file)


def sync_directory(directory: Path) -> None:
    """Make the creation, renaming and removal of files in it durable."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
