"""A batch above one transaction takes effect as a whole at the revision that opens it (issue 18).

The oracle is that of the protocol alone (`support/batch_oracle.py`). A reader that chooses its revision by the windows
of the batches sees exactly such a state.
"""

from __future__ import annotations

from collections.abc import Iterable

from palisade.metastore.results import RevisionEvents
from tests.sim.backups import Base
from tests.sim.world import Checker, World
from tests.support.batch_oracle import BatchOracle, Row, State

KEYS = [b"batch/%d" % number for number in range(6)]
SPAN = (b"batch/", b"batch0")


class LargeBatches(Checker):
    name = "large batches"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._oracle = BatchOracle(SPAN[:1], self.fail, lambda what: world.count(f"large batch: {what}"))

    def drafted(self, name: str, rows: Iterable[Row]) -> None:
        """Before the batch is opened."""
        self._oracle.drafted(name, rows)

    def committed(self, events: RevisionEvents) -> None:
        self._oracle.committed(events)

    def restored(self, base: Base) -> None:
        for events in base.past:
            self.committed(events)

    def read(self, revision: int, rows: State, by: str = "a reader") -> None:
        """What was read at a revision that a reader chose."""
        self._oracle.read(revision, rows, by)
        self.world.count("large batch: read at a cut")
