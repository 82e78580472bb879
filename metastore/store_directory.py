"""The directory of a store: its lock, and which of its files is the current one.

    LOCK        held by the process that uses it
    current/    the store
    incoming/   a snapshot that is being received; has `complete` once it is complete and durable
    previous/   the store before the snapshot, for a moment
    UNVERIFIED  the store is in use, and its file is not verified yet: after a crash verify it first

A complete snapshot becomes the store by two renames. A crash between them leaves no `current`; the next start then
finishes the swap. Thus one complete store exists at every moment.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from palisade.base.directory_lock import DirectoryLock
from palisade.base.durable_files import sync_directory, write_synced
from palisade.base.network_reason import reason_of
from palisade.metastore.store_errors import StoreFailed


class StoreDirectory:
    """Holds the lock until `release`. Raises StoreFailed if the directory is in use or not writable."""

    def __init__(self, path: Path) -> None:
        self.current, self.incoming, self._previous = path / "current", path / "incoming", path / "previous"
        self._path, self._unverified = path, path / "UNVERIFIED"
        self._lock = DirectoryLock(path, StoreFailed, what="store directory")
        self._finish_swap()

    @property
    def suspect(self) -> bool:
        """Whether the last process ended before it had verified the file, perhaps because of the file."""
        return self._unverified.exists()

    def mark_unverified(self, unverified: bool) -> None:
        if unverified:
            self._unverified.touch(0o600)
        else:
            self._unverified.unlink(missing_ok=True)

    def mark_complete(self) -> None:
        """The file in `incoming` is complete and durable: from now on a restart finishes the swap.

        Raises StoreFailed.
        """
        try:
            write_synced(self.incoming / "complete", b"")
            self.sync()
        except OSError as error:
            raise StoreFailed(
                f"a received snapshot cannot be marked complete: {reason_of(error)}. Make room on the disk, or make it "
                "writable, and restart the node"
            ) from error

    def swap(self) -> None:
        """Make `incoming` the store. No file in either may be open."""
        os.rename(self.current, self._previous)
        sync_directory(self._path)
        self._finish_swap()

    def drop_incoming(self) -> None:
        shutil.rmtree(self.incoming, ignore_errors=True)

    def sync(self) -> None:
        """Make created and renamed files in it durable."""
        for directory in (self.current, self.incoming, self._path, self._path.parent):
            if directory.exists():
                sync_directory(directory)

    def release(self) -> None:
        self._lock.release()

    def _finish_swap(self) -> None:
        if not self.current.exists() and self._previous.exists():
            complete = (self.incoming / "complete").exists()
            os.rename(self.incoming if complete else self._previous, self.current)
            sync_directory(self._path)
        if self.current.exists():
            shutil.rmtree(self._previous, ignore_errors=True)
            (self.current / "complete").unlink(missing_ok=True)
