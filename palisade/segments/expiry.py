"""The state of retention: the expired segments, and the reason if nothing is removed.

The retention worker writes it; the holder and the API read it. All of them get it in their constructors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palisade.segments.fenced_rules import unfenced_rules
from palisade.segments.retention import Rules
from palisade.vault.errors import VaultError
from palisade.vault.vault import Vault

Clocks = Callable[[], tuple[float, float]]
"""Wall time since 1970, and the boot clock, which continues during suspend; in seconds."""


class Expiry:
    """`holder_ports.SegmentRetention` of a node with retention."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.trouble: str | None = "no pass has run yet"
        """Why retention removes nothing; None if the last pass read the rules and wall time was steady."""
        self.passes = self.refused = 0
        self.failed: dict[str, str] = {}
        """Error by name of the segments that could not be moved or removed."""
        self.rules: Rules | None = None
        """As read by the last successful pass."""
        self._unfenced: tuple[int, Rules] = (-1, Rules())

    def is_expired(self, name: str, vault: Vault) -> bool:
        """Whether a segment need not be fetched, by the rules of the last pass. Before the first pass: by the rules in
        the vault, read without the fence."""
        rules = self.rules
        if rules is None:
            rules = self._rules_of(vault)
        return rules.expires(name, self.clocks()[0])

    def _rules_of(self, vault: Vault) -> Rules:
        if self._unfenced[0] != vault.revision:
            try:
                self._unfenced = vault.revision, unfenced_rules(vault)
            except VaultError:
                return Rules()
        return self._unfenced[1]

    def view(self) -> dict[str, Any]:
        """Shape `retention` of the API's `Segments`."""
        why = self.trouble or next(iter(self.failed.values()), None)
        return {"works": self.trouble is None, "why": why, "passes": self.passes, "refused": self.refused}
