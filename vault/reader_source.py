"""The source of a reader: a vault that another process has open, or the vault of this process.

LMDB must not be opened twice in one process: readers of one folder share an environment, which is closed with the last
of them. It must not be used after a fork either: the child would share the snapshots of its parent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any, Protocol

import lmdb

from palisade.vault.directory import DATA
from palisade.vault.errors import VaultDamaged, VaultError, VaultUnusable
from palisade.vault.fence_file import FENCE_FILE, boot_mark, map_fence, which_file
from palisade.vault.fence_page import COPY_BYTES, Fence, TornPage, unpack_fence
from palisade.vault.lmdb_tables import READERS_MAX, LmdbBackend
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.snapshot_reads import Transaction
from palisade.vault.tables import VaultTable
from palisade.vault.vault import Vault

MAP_BYTES = 1 << 40
"""Address space of a reader: large enough that the vault does not outgrow it."""
OPENINGS = 10
"""Attempts to open: the heads of a file that is being written may be read between two commits."""
COPIES = 1000
"""How often a torn fence page is read again."""


class ReaderSource(Protocol):
    """`begin` starts a transaction on the newest snapshot; `page` is the fence page, `words` its 8-byte words."""

    opened: int
    """How many vaults it has opened, each replacing the previous one."""
    begin: Callable[[], Transaction]
    tables: list[Any]
    page: bytearray | mmap
    words: memoryview
    boot: bytes
    errors: tuple[type[Exception], ...]

    def name(self) -> str: ...

    def repair(self, error: Exception) -> None:
        """Repair the cause of a failed attempt, if possible. Raises VaultError otherwise."""
        ...

    def replaced(self) -> bool:
        """Whether the vault was replaced by another one; if so, that one is the source from now on."""
        ...

    def close(self) -> None: ...


class VaultFiles:
    """The vault in a folder. Raises VaultForeign (no vault), VaultUnusable, VaultNewer, VaultDamaged."""

    errors: tuple[type[Exception], ...] = (lmdb.Error,)

    def __init__(self, folder: Path, map_bytes: int = MAP_BYTES) -> None:
        self._folder = folder
        self._map_bytes = map_bytes
        self.boot = boot_mark()
        self.opened = 0
        self._open()

    def _open(self) -> None:
        shared = _borrow(self._folder, self._map_bytes)
        try:
            self._mapped, self._page_file = map_fence(self._folder)
        except BaseException:
            _give_back(shared)
            raise
        self._shared = shared
        self.opened += 1
        self.page: bytearray | mmap = self._mapped
        self.words = memoryview(self._mapped).cast("Q")
        self.begin: Callable[[], Transaction] = shared.backend.env.begin
        self.tables: list[Any] = shared.backend.tables

    def name(self) -> str:
        return f"the vault in {self._folder}"

    def repair(self, error: Exception) -> None:
        _repair(self._shared.backend, error)

    def replaced(self) -> bool:
        page, data = which_file(self._folder / FENCE_FILE), which_file(self._folder / DATA)
        if page is None or data is None or (page, data) == (self._page_file, self._shared.file):
            return False
        before = self._shared, self.words, self._mapped
        try:
            self._open()
        except VaultError:
            return False
        _let_go(*before)
        return True

    def close(self) -> None:
        _let_go(self._shared, self.words, self._mapped)


class OwnSource:
    """The vault that this process has open: it is not opened again."""

    def __init__(self, vault: Vault) -> None:
        backend, page = vault.backend, vault.page
        if page is None:
            raise VaultUnusable("this vault has no fence page: open it with open_vault, or pass one")
        self._backend = backend
        self.boot = page.fence.boot
        self.opened = 1
        self.page: bytearray | mmap
        self.errors: tuple[type[Exception], ...] = (lmdb.Error,)
        if isinstance(backend, LmdbBackend):
            self.page = map_fence(backend.directory.path)[0]
            self.begin: Callable[[], Transaction] = backend.env.begin
            self.tables: list[Any] = backend.tables
        elif isinstance(backend, MemoryBackend) and isinstance(page.buffer, bytearray):
            self.page = page.buffer
            self.begin, self.tables = backend.begin, list(VaultTable)
        else:
            raise VaultUnusable("this vault is neither in LMDB nor in memory: no reader can be created")
        self.words = memoryview(self.page).cast("Q")

    def name(self) -> str:
        return "the vault"

    def repair(self, error: Exception) -> None:
        if not isinstance(self._backend, LmdbBackend):
            raise VaultUnusable(f"the vault can't be read: {error}") from error
        _repair(self._backend, error)

    def replaced(self) -> bool:
        return False

    def close(self) -> None:
        self.words.release()
        if isinstance(self.page, mmap):
            self.page.close()


def _repair(backend: LmdbBackend, error: Exception) -> None:
    """The map was outgrown, or slots of dead readers are left: then another attempt may succeed."""
    try:
        if isinstance(error, lmdb.MapResizedError):
            backend.env.set_mapsize(0)
        elif not isinstance(error, lmdb.ReadersFullError):
            raise backend.failure(error) from error
        elif not backend.env.reader_check():
            raise VaultUnusable(
                f"the vault in {backend.directory.path} has {READERS_MAX} reads in progress, its maximum: finish some "
                "of them (an iterator counts until it ends), or try again"
            ) from error
    except lmdb.Error as failed:
        raise backend.failure(failed) from failed


class _Shared:
    def __init__(self, backend: LmdbBackend, file: tuple[int, int] | None) -> None:
        self.backend = backend
        self.file = file
        self.readers = 1


_lock = threading.Lock()
_open: dict[tuple[int, int], _Shared] = {}


def _borrow(folder: Path, map_bytes: int) -> _Shared:
    with _lock:
        file = which_file(folder / DATA)
        shared = _open.get(file) if file is not None else None
        if shared is not None:
            shared.readers += 1
            return shared
        shared = _Shared(_opened(folder, map_bytes), file)
        if file is not None:
            _open[file] = shared
        return shared


def _opened(folder: Path, map_bytes: int) -> LmdbBackend:
    for _ in range(OPENINGS - 1):
        try:
            return LmdbBackend(folder, read_only=True, map_bytes=map_bytes)
        except VaultDamaged:
            pass
    return LmdbBackend(folder, read_only=True, map_bytes=map_bytes)


def _give_back(shared: _Shared) -> None:
    with _lock:
        shared.readers -= 1
        if not shared.readers:
            _open.pop(shared.file or (0, 0), None)
            shared.backend.close()


def _let_go(shared: _Shared, words: memoryview, page: mmap) -> None:
    words.release()
    page.close()
    _give_back(shared)


def at_fork(call: Callable[[], None]) -> None:
    """Register a function to be called in each forked child."""
    os.register_at_fork(after_in_child=call)


def copy_of_fence(source: ReaderSource) -> Fence | None:
    """The fence page; None if every copy was torn. Raises VaultForeign, VaultNewer."""
    for _ in range(COPIES):
        try:
            return unpack_fence(bytes(source.page[:COPY_BYTES]))
        except TornPage:
            continue
    return None
