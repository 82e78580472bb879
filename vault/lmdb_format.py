"""Which LMDB file is a vault, and of which format: creation, recognition, extension of older files.

Format 1 has no PENDING, format 2 no digest of the content beside LV. An older file is extended in one commit when it is
opened for writing; opened read-only it is read unchanged, with missing tables empty. A newer format is refused: a
program that does not know PENDING would apply changes past its rows and leave them behind.
"""

from __future__ import annotations

import os
from typing import Any

import lmdb
import msgpack

from palisade.vault.directory import VaultDirectory
from palisade.vault.errors import RESET, VaultForeign, VaultNewer
from palisade.vault.record_check import CHECKSUMS
from palisade.vault.tables import VaultTable

FORMAT_NAME = "palisade-vault"
FORMAT_VERSION = 3
ABOUT, FORMAT = b"ABOUT", b"format"
SINCE = {VaultTable.PENDING: 2}
"""The format that introduced a table; the others exist since format 1."""

Tables = list[Any]
"""Handles by number; None for a table that a read-only file does not have."""


def open_tables(env: Any, directory: VaultDirectory, *, read_only: bool) -> Tables:
    """Raises VaultForeign, VaultNewer, VaultDamaged, lmdb.Error."""
    try:
        if not read_only and env.stat()["entries"] == 0:
            _write_format(env, directory, os.urandom(8).hex())
        version, mark = _said(env, directory)
        if not read_only and version < FORMAT_VERSION:
            _write_format(env, directory, mark)
            version = FORMAT_VERSION
        return [
            env.open_db(table.name.encode(), create=False) if SINCE.get(table, 1) <= version else None
            for table in VaultTable
        ]
    except (lmdb.NotFoundError, lmdb.IncompatibleError) as error:
        raise _foreign(directory) from error


def _write_format(env: Any, directory: VaultDirectory, mark: str) -> None:
    """All tables and the current format, in one commit, durable on return.

    A marked folder stays marked: this commit does not verify what may be torn.
    """
    marked = directory.marked_unsynced
    if not marked:
        directory.mark_unsynced()
    with env.begin(write=True) as txn:
        about = env.open_db(ABOUT, txn=txn)
        for table in VaultTable:
            env.open_db(table.name.encode(), txn=txn)
        said = msgpack.packb([FORMAT_NAME, FORMAT_VERSION, mark])
        txn.put(FORMAT, CHECKSUMS.seal_all(VaultTable.META, [(FORMAT, said)])[0][1], db=about)
    env.sync(True)
    if not marked:
        directory.mark_synced()


def _said(env: Any, directory: VaultDirectory) -> tuple[int, str]:
    """The version, and the random mark of the file."""
    about = env.open_db(ABOUT, create=False)
    with env.begin(db=about) as txn:
        sealed = txn.get(FORMAT)
    if sealed is None:
        raise _foreign(directory)
    name, version, *rest = msgpack.unpackb(CHECKSUMS.unseal(VaultTable.META, FORMAT, sealed))
    if name != FORMAT_NAME:
        raise _foreign(directory)
    if version > FORMAT_VERSION:
        raise VaultNewer(
            f"the vault in {directory.path} has format {version}; this program knows up to {FORMAT_VERSION}: start it "
            f"with the newer program that wrote it, or {RESET}"
        )
    return version, rest[0] if rest else ""


def _foreign(directory: VaultDirectory) -> VaultForeign:
    return VaultForeign(f"{directory.path} holds an LMDB file that is not a vault: give the node its own data folder")
