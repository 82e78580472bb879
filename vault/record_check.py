"""The checksums of the vault's rows, and the error for a mismatch. Pure."""

from __future__ import annotations

from palisade.base.checksums import RowChecksums
from palisade.vault.errors import RESET, VaultDamaged
from palisade.vault.tables import VaultTable


def _damaged(table: int, key: bytes) -> VaultDamaged:
    return VaultDamaged(f"the vault's value of {key[:64]!r} in table {VaultTable(table).name} is damaged: {RESET}")


CHECKSUMS = RowChecksums(b"vault", VaultTable, _damaged)
