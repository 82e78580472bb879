"""Which files below a directory would survive a loss of power: as of their last syncs, not as the page cache has them.

A file has the content of its last `fsync`, or none, and a directory the names of its last `fsync`. Every rename has to
move what is on the disk already: else a crash may leave a name without its content. Nothing else counts, although most
file systems write more than that by themselves.

Files of LMDB are synced by LMDB, which this does not see: of these, only the names count. Locks and fence pages do not
count, because they mean nothing after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

OF_LMDB = {"data.mdb"}
FOR_A_PROCESS = {"lock.mdb", "LOCK", "owner.lock", "fence", "fence.new"}

REMOVAL = "removal of"


@dataclass(slots=True)
class RecordedDisk:
    """`faults`: renames of what was not on the disk. Patches `os`; `root` and everything below counts as stored."""

    root: Path
    patch: pytest.MonkeyPatch
    faults: list[str] = field(default_factory=list)
    _contents: dict[int, bytes] = field(default_factory=dict)
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    _held: list[int] = field(default_factory=list)
    """Open files: their inodes are not used again."""

    def __post_init__(self) -> None:
        for folder, _, files in os.walk(self.root):
            self._store(Path(folder))
            for each in files:
                self._store(Path(folder, each))
        self._patch_syncs()
        self._patch_renames()

    def _patch_syncs(self) -> None:
        for name in ("fsync", "fdatasync"):
            call = getattr(os, name)

            def sync(file: Any, call: Any = call) -> None:
                call(file)
                number = file if isinstance(file, int) else file.fileno()
                self._store(Path(f"/proc/self/fd/{number}").readlink())

            self.patch.setattr(os, name, sync)

    def _patch_renames(self) -> None:
        for name in ("rename", "replace", "link"):
            call = getattr(os, name)

            def rename(old: Any, new: Any, call: Any = call, **options: Any) -> None:
                missing = [each for each in self.unsynced(Path(old)) if not each.startswith(REMOVAL)]
                self.faults += [f"{each} before it is named {Path(new).name}" for each in missing]
                call(old, new, **options)

            self.patch.setattr(os, name, rename)

    def close(self) -> None:
        for file in self._held:
            os.close(file)

    def _store(self, path: Path) -> None:
        if not path.exists() or path.name in FOR_A_PROCESS:
            return
        number = path.stat().st_ino
        if number not in self._contents and number not in self._names:
            self._held.append(os.open(path, os.O_RDONLY))
        if path.is_dir():
            self._names[number] = {each.name: each.stat().st_ino for each in path.iterdir()}
        elif path.name not in OF_LMDB:
            self._contents[number] = path.read_bytes()

    # What a loss of power takes away.

    def lost(self) -> list[str]:
        """What is not on the disk below the root."""
        return sorted(self.unsynced(self.root))

    def unsynced(self, path: Path) -> Iterator[str]:
        """The parts of a file or of a directory with everything below, whose name does not count."""
        if path.name in FOR_A_PROCESS:
            return
        if not path.is_dir():
            if path.name not in OF_LMDB and self._contents.get(path.stat().st_ino, b"") != path.read_bytes():
                yield f"content of {path.name}"
            return
        stored = dict(self._names.get(path.stat().st_ino, {}))
        for each in sorted(path.iterdir()):
            if stored.pop(each.name, None) != each.stat().st_ino and each.name not in FOR_A_PROCESS:
                yield f"name of {each.name}"
            yield from self.unsynced(each)
        yield from (f"{REMOVAL} {name}" for name in stored if name not in FOR_A_PROCESS)
