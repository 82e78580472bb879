"""What the APIs of a node show of its vault and of its recoveries, whatever kind of node it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palisade.recovery.catchup import Difference
from palisade.recovery.report import RecoveryProgress, RecoveryReport


class RecoveryFace(Protocol):
    """`recovery.vault_component.VaultComponent`, or `EndedRecovery` of a node that never recovers again."""

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
        """The last ones of this process, the very last perhaps still under way."""
        ...

    @property
    def progress(self) -> RecoveryProgress | None:
        """Of the one that is under way."""
        ...

    @property
    def difference(self) -> Difference | None:
        """None on a node that has nobody to catch up with."""
        ...


@dataclass(frozen=True, slots=True)
class EndedRecovery:
    """Of a standalone node: its vault stays as it is."""

    revision: int
    reports: tuple[RecoveryReport, ...]
    begun: int = 1
    progress: None = None
    difference: None = None
