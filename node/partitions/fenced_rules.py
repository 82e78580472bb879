"""Where retention reads its rules: through the fence of the node's own vault (F7, P6). Nothing else is believed.

All rules of the demo's tables are read in one range, so they are of one snapshot; while the vault must not be trusted
the reader refuses, and that is RulesUnknown here: the safe default of the region, no rule, with the reason kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from node.partitions.retention import END, FIRST, Rules, RulesUnknown
from vault.change import Item
from vault.errors import VaultError
from vault.reader import VaultReader
from vault.vault import Vault


class RuleReader(Protocol):
    """Linearizable reads. Both raise RulesUnknown."""

    async def look(self) -> Rules: ...
    def look_now(self) -> Rules:
        """The same in a thread of its own, directly before what must not be done by another rule."""
        ...

    def close(self) -> None: ...


class FencedRules:
    """A RuleReader over a reader of this node's vault, which it closes."""

    def __init__(self, reader: VaultReader) -> None:
        self._reader = reader

    @staticmethod
    def over(vault: Vault) -> FencedRules:
        """To be closed before the vault. Raises VaultError."""
        return FencedRules(VaultReader.over(vault))

    async def look(self) -> Rules:
        try:
            return rules_of(await self._reader.range_async(FIRST, END))
        except VaultError as error:
            raise RulesUnknown(str(error)) from error

    def look_now(self) -> Rules:
        try:
            return rules_of(self._reader.range(FIRST, END))
        except VaultError as error:
            raise RulesUnknown(str(error)) from error

    def close(self) -> None:
        self._reader.close()


def rules_of(items: Iterable[Item]) -> Rules:
    return Rules({item.key: item.value for item in items})


def unfenced_rules(vault: Vault) -> Rules:
    """As the vault has them, stale or not: for what can be undone, and for nothing that can't."""
    return rules_of(vault.range(FIRST, END))
