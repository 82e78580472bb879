"""What one entry of the log changes: its keys, and the content of its events, for the listeners of the store.

The writers add what they write while the entry is applied (`EntryChanges`). `MetaStore.apply` hands it on at the end
(`AppliedEntry`): the very bytes that it wrote, so no listener has to read them back from the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vault.change import Revision

Rows = Mapping[bytes, bytes | None]
"""Rows of KEY by key; None: the row was removed."""

Run = tuple[int, Sequence[bytes], bool]
"""First revision, bodies in order, and whether each body is a revision of its own. Without it: all are of the first."""


class AppliedEntry(NamedTuple):
    """Of one entry that has written keys. `before`: the revision before it; `revision`, `chain`: those after it."""

    before: int
    revision: int
    chain: bytes
    keys: Sequence[bytes]
    runs: Sequence[Run]

    def revisions(self) -> Iterator[Revision]:
        """`before` + 1 to `revision`, without a gap. The last one has the chain digest, which covers all of them."""
        for first, bodies, single in self.runs:
            if not single:
                yield Revision(first, bodies, self.chain if first == self.revision else b"")
                continue
            for number, body in enumerate(bodies, first):
                yield Revision(number, (body,), self.chain if number == self.revision else b"")


class EntryChanges:
    """Of the entry that is being applied. One store and its writers share it; `take` starts the next entry."""

    __slots__ = ("_bodies", "_keys", "_runs")

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._runs: list[Run] = []
        self._bodies: list[bytes] = []

    def add_puts(self, first: int, keys: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        """Puts of which each is a revision, from `first` on. `keys`: each key once."""
        self._keys.extend(keys)
        self._runs.append((first, bodies, True))

    def add_event(self, key: bytes, body: bytes) -> None:
        """Of the revision that `end_revision` ends."""
        self._keys.append(key)
        self._bodies.append(body)

    def end_revision(self, number: int) -> None:
        """Without an event before it there is no revision."""
        if self._bodies:
            self._runs.append((number, self._bodies, False))
            self._bodies = []

    def take(self, before: int, revision: int, chain: bytes) -> AppliedEntry:
        """All that was added since the last call."""
        applied = AppliedEntry(before, revision, chain, self._keys, self._runs)
        self._keys, self._runs = [], []
        return applied


class StoreListener:
    """What follows a `MetaStore`, which calls it in the order in which `MetaStore.listen` names its listeners.

    Every method runs inside the store's own step: it must be quick, must not wait and must not write to the store.
    """

    def applied(self, changes: AppliedEntry) -> None:
        """After each entry that has written keys."""

    def reloaded(self) -> None:
        """After the whole state was replaced by a snapshot of the group."""

    def saving(self) -> None:
        """A flush begins: the state as it is now, between two entries, is what will be in the file."""

    def flushed(self, keys: Sequence[bytes], rows: Rows) -> None:
        """That flush is in the file, with these rows of KEY; `keys` are theirs, in order."""
