"""The folder of a vault: its lock, detection of a possible power failure, and putting the vault aside.

`unsynced` exists from before the first commit until everything is synced, and contains the boot id. If it is found in
the same boot, only the process died, which tears nothing. If it is found in another boot, the machine went down: the
file is suspect until it is verified as a whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct

from palisade.base.directory_lock import DirectoryLock
from palisade.base.durable_files import sync_directory, write_synced
from palisade.base.lmdb_env import problem_of
from palisade.vault.errors import RESET, VaultDamaged, VaultForeign, VaultUnusable

DATA, LOCK, UNSYNCED = "data.mdb", "owner.lock", "unsynced"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MAGIC = 0xBEEFC0DE
META = Struct("=16xII8x8xI92xQQ")
"""Of an LMDB meta page: magic, version, page size, last page, transaction number."""
TRUNCATED = "is truncated"
"""LMDB does not write pages that a transaction took at the end of the file and freed again, so a sound file may be
shorter than its head states. A walk of all pages in use decides."""


class VaultDirectory:
    def __init__(self, path: Path, boot_id: str | None = None) -> None:
        self.path = path
        self._boot_id = read_boot_id() if boot_id is None else boot_id
        self._lock: DirectoryLock | None = None

    def claim(self) -> None:
        """Create the folder and become its only writer. Raises VaultUnusable."""
        remedy = "stop the node that has it open first"
        self._lock = DirectoryLock(self.path, VaultUnusable, what="vault directory", remedy=remedy, file=LOCK)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def require_file(self) -> None:
        if not (self.path / DATA).is_file():
            raise VaultForeign(
                f"there is no vault in {self.path}: give a reader the folder 'vault' of a node that has recovered, a "
                "standalone node its data folder"
            )

    def require_unused(self) -> None:
        """Raises VaultUnusable if a node has it open."""
        self.claim()
        self.release()

    @property
    def suspect(self) -> bool:
        """Whether the machine may have gone down while the file was written; false for a missing or empty file."""
        if not self._has_content():
            return False
        try:
            left = (self.path / UNSYNCED).read_text(encoding="ascii")
        except FileNotFoundError:
            return False
        except (OSError, UnicodeDecodeError):
            return True
        return not self._boot_id or left != self._boot_id

    @property
    def marked_unsynced(self) -> bool:
        """Whether some commits may not be on the disk yet, in this boot or an earlier one."""
        return (self.path / UNSYNCED).exists()

    def _has_content(self) -> bool:
        try:
            return (self.path / DATA).stat().st_size > 0
        except OSError:
            return False

    def mark_unsynced(self) -> None:
        try:
            write_synced(self.path / UNSYNCED, self._boot_id.encode("ascii"))
            self.sync()
        except OSError as error:
            raise self._unwritable(error) from error

    def mark_synced(self) -> None:
        """Raises VaultUnusable; after that, either state of the marker is correct."""
        try:
            (self.path / UNSYNCED).unlink(missing_ok=True)
            self.sync()
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> VaultUnusable:
        return VaultUnusable(
            f"the vault in {self.path} can't be written: {error}. Make room on its disk, or give the node's user "
            "write permission, and start the node again"
        )

    def sync(self) -> None:
        sync_directory(self.path)

    def asides(self) -> list[Path]:
        """The vaults that `put_aside` has renamed. Raises OSError."""
        return sorted(self.path.parent.glob(f"{self.path.name}.aside-*"))

    def put_aside(self) -> Path:
        """Rename the folder to a free name, so that the next start creates a new vault. Returns the new path.

        Durable on return."""
        self.require_file()
        self.claim()
        try:
            number = 1
            while (aside := self.path.with_name(f"{self.path.name}.aside-{number}")).exists():
                number += 1
            self.path.rename(aside)
            sync_directory(self.path.absolute().parent)
        except OSError as error:
            raise VaultUnusable(f"the vault in {self.path} can't be put aside: {error}") from error
        finally:
            self.release()
        return aside


def read_boot_id() -> str:
    """Empty if the system has no boot id: then every crash counts as a power failure."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def check_head(path: Path) -> None:
    """Refuse a file that LMDB cannot open safely: truncated, damaged, or no LMDB file. Raises VaultDamaged,
    VaultUnusable.

    A node may commit while a reader process checks, so the two heads and the size may be of different moments. A fault
    counts only if two successive checks saw the same heads.
    """
    data = path / DATA
    before: tuple[bytes, ...] = ()
    while True:
        try:
            heads, size = _read_heads(data)
        except FileNotFoundError:
            return
        except OSError as error:
            raise VaultUnusable(f"{data} can't be read: {error}. Make it readable") from error
        fault = _head_fault(heads, size)
        if fault is None:
            return
        if heads == before:
            if fault.startswith(TRUNCATED) and problem_of(path) is None:
                return
            raise VaultDamaged(f"{data} {fault}: {RESET}")
        before = heads


def _read_heads(data: Path) -> tuple[tuple[bytes, bytes], int]:
    """The first bytes of both meta pages, then the size: the file grows before a meta page refers to the growth."""
    with data.open("rb") as stream:
        first = stream.read(META.size)
        page_bytes = META.unpack(first)[2] if len(first) == META.size else 0
        stream.seek(page_bytes)
        second = stream.read(META.size)
        return (first, second), os.fstat(stream.fileno()).st_size


def _head_fault(heads: tuple[bytes, bytes], size: int) -> str | None:
    if size == 0:
        return None
    if any(len(head) < META.size for head in heads):
        return "is too short, damaged, or no LMDB file"
    metas = [META.unpack(head) for head in heads]
    page_bytes = metas[0][2]
    if page_bytes == 0 or any(meta[0] != MAGIC for meta in metas):
        return "is too short, damaged, or no LMDB file"
    older, newer = sorted(meta[4] for meta in metas)
    if newer - older != 1 and newer != 0:
        return f"has heads of transactions {older} and {newer}"
    last_page = max(metas, key=lambda meta: meta[4])[3]
    if (last_page + 1) * page_bytes > size:
        return f"{TRUNCATED}: it has {size} bytes of {(last_page + 1) * page_bytes}"
    return None
