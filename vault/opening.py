"""A vault of a node, opened: mended by nobody, verified as a whole where a loss of power may have torn it."""

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
    """The vault in `path`, made where there is none; in milliseconds, whatever it holds, unless it is suspect.

    Raises VaultUnusable (in use, no permission, disk full), VaultForeign, VaultNewer, VaultDamaged: each says what to
    do. Its fence page says FENCED from before it is opened until `page.serve`. `boot_id`: which start of the machine
    this is, read from the system unless it is given. `between` is called every some hundred entries that are verified;
    what it raises ends it.
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
            backend.vouch()
    except BaseException:
        backend.abandon()
        raise
    return vault


def read_vault(path: Path) -> Vault:
    """A vault that a node may have open, to be looked at: as of this moment. Meanwhile that node's file may grow."""
    backend = LmdbBackend(path, read_only=True)
    try:
        backend.hold()
        return Vault(backend)
    except BaseException:
        backend.abandon()
        raise
