"""The state of a node's vault and of its recoveries, as the APIs read it from every kind of node. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palisade.recovery.catchup import Difference
from palisade.recovery.report import RecoveryProgress, RecoveryReport


class RecoveryStatus(Protocol):
    """`recovery.vault_component.VaultComponent`, or `EndedRecovery` for a node that never recovers again."""

    @property
    def revision(self) -> int:
        """LV."""
        ...

    @property
    def begun(self) -> int:
        """How many recoveries this process has begun."""
        ...

    @property
    def reports(self) -> Sequence[RecoveryReport]:
        """The last ones of this process; the very last may be in progress."""
        ...

    @property
    def progress(self) -> RecoveryProgress | None:
        """Of the recovery in progress."""
        ...

    @property
    def difference(self) -> Difference | None:
        """None on a node without a cluster to catch up with."""
        ...


@dataclass(frozen=True, slots=True)
class EndedRecovery:
    """Of a standalone node: its vault does not change."""

    revision: int
    reports: tuple[RecoveryReport, ...]
    begun: int = 1
    progress: None = None
    difference: None = None
