"""Counts of an ingester since its start, for its metrics, and the error of a failing disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from palisade.base.errors import PalisadeError
from palisade.journal.errors import DirectoryInUse
from palisade.wire.segment_errors import RealtimeNotStored


@dataclass(slots=True)
class RealtimeTally:
    """`appended`: acknowledged rows. `handed_off`: segments whose logs were removed because copies have their rows.
    `refused`: requests, by the code of their error."""

    appended: int = 0
    handed_off: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def request(self, refused: str) -> Iterator[None]:
        """Raises RealtimeNotStored with this text if the disk fails."""
        try:
            with storing(refused):
                yield
        except PalisadeError as error:
            self.refused[error.code] += 1
            raise


@contextmanager
def storing(refused: str) -> Iterator[None]:
    try:
        yield
    except (OSError, DirectoryInUse) as error:
        raise RealtimeNotStored(f"{refused}: {error}; free space or repair the disk, then restart the node") from error
