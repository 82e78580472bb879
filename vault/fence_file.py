"""The fence page as a file that readers map; its clock; the identification of a boot.

The file is created completely under another name and then renamed, so readers never see a part of it. It persists over
restarts of the node, so existing mappings stay valid. The writer, which owns the folder, replaces a file that is not a
fence page; readers refuse it. The node writes with `pwrite`, which readers see in their mappings: a full disk is then
an error, not a signal.
"""

from __future__ import annotations

import mmap
import os
import time
from hashlib import blake2b
from pathlib import Path

from palisade.vault.directory import read_boot_id
from palisade.vault.errors import VaultError, VaultForeign, VaultNewer, VaultUnusable
from palisade.vault.fence_page import BOOT_BYTES, COPY_BYTES, FENCE_BYTES, Fence, FencePage, TornPage, unpack_fence

FENCE_FILE = "fence"
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Continues while the machine is suspended, and is the same in every process. Never wall time."""
TIME_NAMESPACE = "/proc/self/ns/time"


def clock_ns() -> int:
    """The clock of deadlines, in ns."""
    return time.clock_gettime_ns(CLOCK)


def boot_mark(boot_id: str | None = None) -> bytes:
    """8 bytes, equal for processes with the same `clock_ns`: same boot, same time namespace.

    If the system has no boot id, the mark differs between processes: readers then see the node as fenced, which is
    safe.
    """
    boot = read_boot_id() if boot_id is None else boot_id
    try:
        clocks = os.readlink(TIME_NAMESPACE)
    except OSError:
        clocks = ""
    said = f"{boot} {clocks}" if boot else f"unknown {os.getpid()} {clocks}"
    return blake2b(said.encode(), digest_size=BOOT_BYTES).digest()


class FenceFile:
    """The node's fence page, in the folder of its vault; created FENCED. Each change can raise VaultUnusable.

    The creator holds the lock of the folder.
    """

    def __init__(self, folder: Path, boot_id: str | None = None) -> None:
        path = folder / FENCE_FILE
        try:
            if not _is_page(path):
                _make(path)
            self._file = _Written(path)
        except OSError as error:
            raise _unwritable(path, error) from error
        self.page = FencePage(self._file, boot_mark(boot_id), first_sequence=clock_ns())

    def close(self) -> None:
        """Set FENCED and close the file."""
        if not self._file.closed:
            try:
                self.page.refuse()
            finally:
                self._file.close()


class _Written:
    """A file as a write-only buffer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self.closed = False

    def __setitem__(self, index: slice, value: bytes) -> None:
        try:
            written = os.pwrite(self._descriptor, value, index.start or 0)
        except OSError as error:
            raise _unwritable(self._path, error) from error
        if written != len(value):
            raise VaultUnusable(f"{self._path}: only {written} bytes were written: make room on the disk")

    def close(self) -> None:
        self.closed = True
        os.close(self._descriptor)


def _unwritable(path: Path, error: OSError) -> VaultUnusable:
    return VaultUnusable(f"{path} can't be written: {error}. Make room on the disk, or make it writable")


def map_fence(folder: Path) -> tuple[mmap.mmap, tuple[int, int]]:
    """A reader's mapping, and the file's (device, inode). Raises VaultUnusable (no file), VaultForeign."""
    path = folder / FENCE_FILE
    try:
        if path.stat().st_size < FENCE_BYTES:
            raise VaultForeign(f"{path} is too short for a fence page: stop the node, remove it, and start the node")
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            mapped = mmap.mmap(stream.fileno(), FENCE_BYTES, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise VaultUnusable(f"there is no fence page in {folder}: start its node in this version") from error
    except OSError as error:
        raise VaultUnusable(f"{path} can't be read: {error}. Make it readable for this process") from error
    try:
        unpack_fence(mapped[:COPY_BYTES])
    except TornPage:
        pass
    except VaultForeign as error:
        raise VaultForeign(f"{path}: {error}") from error
    return mapped, (status.st_dev, status.st_ino)


def look_at(folder: Path) -> tuple[Fence, bool] | None:
    """The content of the page, and whether the vault may be trusted now; None: no readable page."""
    try:
        mapped, _ = map_fence(folder)
    except VaultError:
        return None
    with mapped:
        try:
            fence = unpack_fence(mapped[:COPY_BYTES])
        except TornPage:
            return None
    return fence, fence.serves(clock_ns(), boot_mark())


def which_file(path: Path) -> tuple[int, int] | None:
    """(device, inode); None: no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def vault_id(folder: Path) -> str:
    """Identifies a fence page: another file, or another boot, is another holder under the same name.

    A holder with the same id has therefore set FENCED in the very page that readers of the previous process check.
    """
    page = which_file(folder / FENCE_FILE)
    return blake2b(repr((boot_mark(), page)).encode(), digest_size=8).hexdigest()


def _is_page(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            copy = stream.read(FENCE_BYTES + 1)
        unpack_fence(copy)
    except TornPage:
        pass
    except (FileNotFoundError, VaultForeign, VaultNewer):
        return False
    return len(copy) == FENCE_BYTES


def _make(path: Path) -> None:
    partial = path.with_name(f"{path.name}.new")
    page = bytearray(FENCE_BYTES)
    FencePage(page, bytes(BOOT_BYTES))
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, page)
    finally:
        os.close(descriptor)
    partial.replace(path)
