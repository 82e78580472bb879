"""Files that survive a power failure: synced, and replaced completely or not at all.

New content is written to a partial file in the same directory, synced, and renamed over the old file; then the
directory is synced. A crash leaves the old content or the new one, and possibly the partial file, which the next
attempt overwrites.

Every function raises OSError.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def sync_directory(directory: Path) -> None:
    """Make the creation, renaming and removal of files in it durable."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def make_directory(directory: Path) -> None:
    """Create the directory and its parents where they are missing; durable on return."""
    directory = directory.absolute()
    if not directory.is_dir():
        if not directory.parent.exists():
            make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def sync_file(file: BinaryIO) -> None:
    """Everything written to the file is on disk when this returns."""
    file.flush()
    os.fsync(file.fileno())


def sync_tree(directory: Path) -> None:
    """Sync every file and directory below."""
    for folder, _, files in os.walk(directory, topdown=False):
        for each in files:
            with Path(folder, each).open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(folder))


def write_synced(path: Path, content: bytes) -> None:
    """Write the file in place. Its name is durable once its directory is synced; a crash may leave partial content."""
    with path.open("wb") as file:
        file.write(content)
        sync_file(file)


def publish(partial: Path, path: Path) -> None:
    """Rename a synced file to its final name, replacing the file of that name; durable on return."""
    partial.replace(path)
    sync_directory(path.absolute().parent)


@contextmanager
def replacing(path: Path, partial: Path, *, exclusive: bool = False) -> Iterator[BinaryIO]:
    """The file to write the new content of `path` to. The partial file is removed if writing fails.

    `exclusive`: an existing partial file belongs to another writer (FileExistsError)."""
    opened = partial.open("xb" if exclusive else "wb")
    try:
        with opened as file:
            yield file
            sync_file(file)
        publish(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes, partial: Path) -> None:
    """Replace the complete content; durable on return."""
    with replacing(path, partial) as file:
        file.write(content)
