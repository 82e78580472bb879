"""Opens a node's vault: repairs nothing, and verifies it as a whole if a power failure may have torn it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from palisade.vault.directory import VaultDirectory
from palisade.vault.lmdb_tables import MAP_BYTES, LmdbBackend
from palisade.vault.vault import Vault
from palisade.vault.verification import check_lookups, check_structure, verify


def open_vault(
    path: Path,
    *,
    map_bytes: int = MAP_BYTES,
    boot_id: str | None = None,
    between: Callable[[], None] = lambda: None,
) -> Vault:
    """The vault in `path`, created if missing; opens in milliseconds whatever its size, unless it is suspect.

    Raises VaultUnusable (in use, no permission, disk full), VaultForeign, VaultNewer, VaultDamaged, each with the
    remedy. Its fence page is FENCED from before the opening until `page.serve`. `boot_id`: identifies the boot of the
    machine; read from the system if not given. `between` is called every few hundred verified entries; an exception
    from it ends the verification.
    """
    directory = VaultDirectory(path, boot_id)
    suspect = directory.suspect
    if suspect:
        check_structure(path)
    backend = LmdbBackend(path, map_bytes=map_bytes, boot_id=boot_id)
    try:
        vault = Vault(backend, backend.fence.page if backend.fence is not None else None)
        if suspect:
            check_lookups(backend)
            for _ in verify(vault):
                between()
            backend.mark_verified()
    except BaseException:
        backend.abandon()
        raise
    return vault


def read_vault(path: Path) -> Vault:
    """A vault that a node may have open, as of this moment, for inspection. Meanwhile the file may grow."""
    backend = LmdbBackend(path, read_only=True)
    try:
        backend.hold()
        return Vault(backend)
    except BaseException:
        backend.abandon()
        raise
