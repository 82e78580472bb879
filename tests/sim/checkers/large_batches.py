"""A batch above one transaction takes effect as a whole at the revision that opens it (issue 18).

At each revision that no open batch splits, the store has these rows, and a later change of a key wins whenever its row
of the batch is copied. A reader that chooses its revision by the windows of the batches sees exactly such a state.
"""

from __future__ import annotations

from collections.abc import Iterable

from palisade.metastore.results import RevisionEvents
from tests.sim.backups import Base
from tests.sim.world import Checker, World

KEYS = [b"batch/%d" % number for number in range(6)]
PREFIX = b"batch/"
SPAN = (PREFIX, b"batch0")
OPEN, STAGES = b"pipeline/batches/open/", b"pipeline/stages/"
"""Written here once more: the checker shares nothing with the product."""
Row = tuple[bytes, bytes | None]
State = dict[bytes, bytes]


class LargeBatches(Checker):
    name = "large batches"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._drafts: dict[bytes, list[Row]] = {}
        self._open: set[bytes] = set()
        self._rows: State = {}
        self._right: State = {}
        self._whole: list[tuple[int, State | None]] = [(0, {})]
        """What readers must find from each revision on; None while a batch is open."""

    def drafted(self, name: str, rows: Iterable[Row]) -> None:
        """Before the batch is opened."""
        self._drafts[OPEN + name.encode()] = list(rows)

    def committed(self, events: RevisionEvents) -> None:
        before, opens, touched = dict(self._right), False, False
        is_copy = any(event.delete and event.kv.key.startswith(STAGES) for event in events.events)
        for event in events.events:
            key, value = event.kv.key, None if event.delete else event.kv.value
            if key.startswith(PREFIX):
                touched = True
                put(self._rows, key, value)
                if not is_copy:
                    put(self._right, key, value)
            elif event.delete and key.startswith(STAGES) and b"/rows/" in key:
                if OPEN + key.removeprefix(STAGES).split(b"/")[0] not in self._open:
                    self.world.count("large batch: swept")
            elif key.startswith(OPEN):
                touched = True
                if event.delete:
                    self._open.discard(key)
                    self.world.count("large batch: closed")
                else:
                    opens = True
                    self._open.add(key)
                    for row in self._drafts.get(key, ()):
                        put(self._right, *row)
        if not touched:
            return
        if opens:
            self._keep(events.revision, before if len(self._open) == 1 else None)
            self._whole.append((events.revision + 1, None))
        else:
            self._keep(events.revision, None if self._open else dict(self._right))

    def restored(self, base: Base) -> None:
        for events in base.past:
            self.committed(events)

    def _keep(self, revision: int, state: State | None) -> None:
        self._whole.append((revision, state))
        if state is not None and state != self._rows:
            self.fail(f"revision {revision} has {self._rows} at the keys of batches, not {state}")

    def read(self, revision: int, rows: State, by: str = "a reader") -> None:
        """What was read at a revision that a reader chose."""
        found = next(state for since, state in reversed(self._whole) if since <= revision)
        if found is None:
            self.fail(f"{by} chose revision {revision}, at which the store has a part of a batch")
        elif rows != found:
            self.fail(f"{by} of revision {revision} has {rows}, not {found}")
        self.world.count("large batch: read at a cut")


def put(state: State, key: bytes, value: bytes | None) -> None:
    state.pop(key, None)
    if value is not None:
        state[key] = value
