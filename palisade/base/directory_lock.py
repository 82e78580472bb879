"""One process per directory: a lock that ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from palisade.base.durable_files import make_directory
from palisade.base.network_reason import reason_of

TRIES = 10_000
"""How often a lock is tried while other processes have shared locks. Only another program has one for longer."""


class DirectoryLock:
    """Creates the directory, durably, and holds a lock on `<directory>/<file>`.

    Raises the error that `refuse` creates from a text if another process holds the lock or the directory is not
    writable. `what` names the directory in that text, `remedy` what to do about the other process.
    """

    def __init__(
        self,
        directory: Path,
        refuse: Callable[[str], Exception],
        *,
        what: str = "data directory",
        remedy: str = "stop it first, or choose another one",
        file: str = "LOCK",
    ) -> None:
        try:
            make_directory(directory)
            self._file = os.open(directory / file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise refuse(
                f"the {what} {directory} can't be used: {reason_of(error)}. Make it writable, or choose another"
            ) from error
        try:
            lock_file(self._file)
        except OSError as error:
            os.close(self._file)
            raise refuse(f"the {what} {directory} is in use by another process: {remedy}") from error

    def release(self) -> None:
        os.close(self._file)


def lock_file(descriptor: int) -> None:
    """Lock for this process until the file is closed. Raises OSError at once if another process holds the lock.

    `is_locked` takes a shared lock for some microseconds. It does not prevent this lock: while a shared lock is
    granted here as well, no process holds an exclusive one, so the processor is yielded and the lock is tried again."""
    for _ in range(TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.sched_yield()
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(directory: Path, file: str = "LOCK") -> bool:
    """Whether a process holds the `DirectoryLock` of `directory`. False if that cannot be found out."""
    try:
        descriptor = os.open(directory / file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
