"""Reads the retention rules through the fence of the node's own vault, their only trusted source (F7, P6).

All rules of the demo's tables are read in one range, so they belong to one snapshot. While the vault must not be read,
this module raises RulesUnknown with the reason. The safe default is to have no rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from palisade.segments.retention import END, FIRST, Rules, RulesUnknown
from palisade.vault.change import Item
from palisade.vault.errors import VaultError
from palisade.vault.reader import VaultReader
from palisade.vault.vault import Vault


class RuleReader(Protocol):
    """Linearizable reads. Both raise RulesUnknown."""

    async def look(self) -> Rules: ...
    def look_now(self) -> Rules:
        """`look` for a worker thread, directly before an action that depends on the rules."""
        ...

    def close(self) -> None: ...


class FencedRules:
    """A RuleReader over a reader of this node's vault, which it closes."""

    def __init__(self, reader: VaultReader) -> None:
        self._reader = reader

    @staticmethod
    def over(vault: Vault, now: Callable[[], float]) -> FencedRules:
        """Close it before the vault. `now`: the clock of its fence, in seconds. Raises VaultError."""
        return FencedRules(VaultReader.over(vault, clock_ns=lambda: int(now() * 1e9)))

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
    """The vault's rules, possibly stale. Use only for reversible actions."""
    return rules_of(vault.range(FIRST, END))
