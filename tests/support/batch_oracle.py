"""What readers must find at each revision while batches above one transaction are published (issue 18).

A batch takes effect as a whole at the revision that opens it; every other change at its own revision. A later change of
a key wins whenever its row of the batch is copied. At a revision that an open batch splits, nothing is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from palisade.metastore.results import RevisionEvents

OPEN, STAGES = b"pipeline/batches/open/", b"pipeline/stages/"
"""Written here once more: the oracle shares nothing with the product."""
Row = tuple[bytes, bytes | None]
State = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Drafted:
    """`replaces`: the other keys of the first prefix are deleted. `number`: of a batch that several processes may
    try to publish."""

    rows: tuple[Row, ...]
    replaces: bool = False
    number: int | None = None


class BatchOracle:
    """`prefixes`: of the keys that batches write. `fail` is called with a violation, `count` with what has happened."""

    def __init__(
        self, prefixes: tuple[bytes, ...], fail: Callable[[str], None], count: Callable[[str], None] = lambda what: None
    ) -> None:
        self._prefixes, self._fail, self._count = prefixes, fail, count
        self._drafts: dict[bytes, Drafted] = {}
        self._open: set[bytes] = set()
        self._rows: State = {}
        self._right: State = {}
        self._whole: list[tuple[int, State | None]] = [(0, {})]
        """What readers must find from each revision on (`at`); None while a batch is open."""
        self.opened = 0
        self.published: set[int] = set()
        """By their numbers."""

    def drafted(self, name: str, rows: Iterable[Row], *, replaces: bool = False, number: int | None = None) -> None:
        """Before the batch is opened."""
        self._drafts[OPEN + name.encode()] = Drafted(tuple(rows), replaces, number)

    def committed(self, events: RevisionEvents) -> None:
        before, opens, touched = dict(self._right), False, False
        is_copy = any(event.delete and event.kv.key.startswith(STAGES) for event in events.events)
        for event in events.events:
            key, value = event.kv.key, None if event.delete else event.kv.value
            if key.startswith(self._prefixes):
                touched = True
                put(self._rows, key, value)
                if not is_copy:
                    put(self._right, key, value)
            elif event.delete and key.startswith(STAGES) and b"/rows/" in key:
                if OPEN + key.removeprefix(STAGES).split(b"/")[0] not in self._open:
                    self._count("swept")
            elif key.startswith(OPEN):
                touched = True
                if event.delete:
                    self._open.discard(key)
                    self._count("closed")
                else:
                    opens = True
                    self._opens(key)
        if not touched:
            return
        if opens:
            self._keep(events.revision, before if len(self._open) == 1 else None)
            self._whole.append((events.revision + 1, None))
        else:
            self._keep(events.revision, None if self._open else dict(self._right))

    def _opens(self, key: bytes) -> None:
        self.opened += 1
        self._open.add(key)
        draft = self._drafts.get(key, Drafted(()))
        if draft.number is not None:
            if draft.number in self.published:
                self._fail(f"batch {draft.number} is published twice")
            self.published.add(draft.number)
        if draft.replaces:
            for gone in [gone for gone in self._right if gone.startswith(self._prefixes[0])]:
                del self._right[gone]
        for row in draft.rows:
            put(self._right, *row)

    def _keep(self, revision: int, state: State | None) -> None:
        self._whole.append((revision, state))
        if state is not None and state != self._rows:
            self._fail(f"revision {revision} has {self._rows} at the keys of batches, not {state}")

    def at(self, revision: int) -> State | None:
        return next(state for since, state in reversed(self._whole) if since <= revision)

    def read(self, revision: int, rows: State, by: str) -> None:
        """What was read at a revision that a reader chose."""
        found = self.at(revision)
        if found is None:
            self._fail(f"{by} chose revision {revision}, at which the store has a part of a batch")
        elif rows != found:
            self._fail(f"{by} of revision {revision} has {rows}, not {found}")


def put(state: State, key: bytes, value: bytes | None) -> None:
    state.pop(key, None)
    if value is not None:
        state[key] = value
