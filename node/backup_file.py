"""Writes a backup to a file: the final name appears only when the file is complete, checked and on disk.

The backup is written to `FILE.partial`, synced, read again from first to last byte, and renamed. If the command ends
before that, there is no FILE; the next attempt overwrites a partial file left by a kill.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from palisade.base.directory_lock import lock_file
from palisade.base.durable_files import publish, sync_file
from palisade.base.errors import PalisadeError
from palisade.base.network_reason import reason_of
from palisade.base.new_file import why_not_made
from palisade.metastore.backup import BackupCheck, BackupEnd, BackupHeader

READ_BYTES = 1 << 20
Progress = Callable[[int, int | None], None]
"""Called with the bytes so far, and about how many there will be."""


class BackupFileError(PalisadeError):
    """The file cannot be written or read; the text names the file, the reason and the remedy."""

    code = "bad-backup-file"


class BackupFile:
    """`begin` before every attempt; then `write`, then `finish`; `discard` in any case. Raises BackupFileError.

    `finished`: the file has its final name."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self._path = path
        self.finished = False
        try:
            reason = why_not_made(path, overwrite=overwrite)
        except OSError as error:
            raise BackupFileError(f"{path} can't be written: {reason_of(error)}; give another path") from None
        if reason is not None:
            raise BackupFileError(reason)
        self._partial = path.with_name(f"{path.name}.partial")
        try:
            self._file: BinaryIO | None = os.fdopen(os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        except OSError as error:
            raise BackupFileError(f"{self._partial} can't be written: {reason_of(error)}; give another path") from None
        try:
            lock_file(self._file.fileno())
        except OSError:
            self._file.close()
            self._file = None
            raise BackupFileError(f"another backup is being written to {path}: wait for it, or give another") from None

    def begin(self) -> None:
        """Discard the data of an earlier attempt."""
        with self._failing() as file:
            file.seek(0)
            file.truncate()

    def write(self, data: bytes) -> None:
        with self._failing() as file:
            file.write(data)

    def finish(self, progress: Progress) -> tuple[BackupHeader, BackupEnd]:
        """Sync, check, rename. Raises BackupInvalid if the disk returns other bytes than were written."""
        with self._failing() as file:
            sync_file(file)
        found = verify_file(self._partial, progress)
        try:
            publish(self._partial, self._path)
        except OSError as error:
            raise BackupFileError(f"{self._path} can't be written: {reason_of(error)}; give another path") from None
        self.finished = True
        self._close()
        return found

    def discard(self) -> None:
        """Remove an unfinished file."""
        if self._file is not None:
            with suppress(OSError):
                self._partial.unlink()
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _failing(self) -> _Failing:
        return _Failing(self._partial, self._file)


class _Failing:
    """Converts errors of the operating system into a BackupFileError that names the remedy."""

    def __init__(self, path: Path, file: BinaryIO | None) -> None:
        self._path, self._file = path, file

    def __enter__(self) -> BinaryIO:
        if self._file is None:
            raise BackupFileError(f"{self._path} is closed")
        return self._file

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise BackupFileError(
                f"{self._path} can't be written: {reason_of(error)}; make room, or give another path"
            ) from None


def read_parts(path: Path) -> Iterator[bytes]:
    """The content of a file in parts. Raises BackupFileError."""
    try:
        with path.open("rb") as file:
            while data := file.read(READ_BYTES):
                yield data
    except OSError as error:
        raise BackupFileError(f"{path} can't be read: {reason_of(error)}; check the path") from None


def verify_file(path: Path, progress: Progress) -> tuple[BackupHeader, BackupEnd]:
    """Read and check the whole file. Raises BackupInvalid, BackupFileError."""
    check, done = BackupCheck(str(path)), 0
    total = path.stat().st_size if path.exists() else None
    for data in read_parts(path):
        check.feed(data)
        done += len(data)
        progress(done, total)
    return check.finish()
