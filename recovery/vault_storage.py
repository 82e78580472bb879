"""The location of a node's vault: a folder; a simulation has none."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from palisade.recovery.report import RecoveryReport
from palisade.recovery.report_file import keep_report
from palisade.recovery.vault_opening import opened
from palisade.vault.fence_file import vault_id
from palisade.vault.vault import Vault


class VaultHome(Protocol):
    async def open(self) -> Vault:
        """Its fence page is FENCED before anything can be written. Raises VaultError."""
        ...

    def vault_id(self) -> str:
        """Identifies the fence page of the open vault."""
        ...

    def keep(self, report: RecoveryReport) -> None:
        """For use after the end of the process."""
        ...


class VaultFolder:
    """The real one: the folder `vault` in the data folder of a node."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.keep = keep_report(path.parent)

    async def open(self) -> Vault:
        return await opened(self._path)

    def vault_id(self) -> str:
        return vault_id(self._path)
