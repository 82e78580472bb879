"""Files that survive the loss of power: synced, and replaced as a whole or not at all.

A new content is written to a partial file in the same directory, synced, and renamed over the old one; then the
directory is synced. A crash at any moment leaves the old content or the new one, and perhaps the partial file, which
the next try writes over.

Everything here raises OSError.
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


def sync_file(file: BinaryIO) -> None:
    """Everything written to it is on disk when this returns."""
    file.flush()
    os.fsync(file.fileno())


def sync_tree(directory: Path) -> None:
    """Every file below, and every name."""
    for folder, _, files in os.walk(directory, topdown=False):
        for each in files:
            with Path(folder, each).open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(folder))


def write_synced(path: Path, content: bytes) -> None:
    """Write the file in place. Its name is durable once its directory is synced; a crash may leave a part of it."""
    with path.open("wb") as file:
        file.write(content)
        sync_file(file)


def publish(partial: Path, path: Path) -> None:
    """Give a synced file its final name, over what had that name; durable when this returns."""
    partial.replace(path)
    sync_directory(path.absolute().parent)


@contextmanager
def replacing(path: Path, partial: Path, *, exclusive: bool = False) -> Iterator[BinaryIO]:
    """The file to write the new content of `path` to. The partial file is removed where writing it fails.

    `exclusive`: a partial file that exists belongs to another writer (FileExistsError)."""
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
    """Replace the whole content; durable when this returns."""
    with replacing(path, partial) as file:
        file.write(content)
