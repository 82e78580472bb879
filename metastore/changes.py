"""What one entry of the log changes: its keys, and the content of its events, for the listeners of the store.

The writers add what they write while the entry is applied (`EntryChanges`). At the end, `MetaStore.apply` passes the
same bytes to the listeners (`AppliedEntry`), so no listener has to read them back from the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from palisade.base.digest import digest_bytes
from palisade.vault.change import Revision

Rows = Mapping[bytes, bytes | None]
"""Rows of KEY by key; None: the row was removed."""

Run = tuple[int, Sequence[bytes], bool]
"""First revision, bodies in order, and whether each body is a revision of its own. Without it: all are of the first."""


class AppliedEntry(NamedTuple):
    """One entry that has written keys. `before`: the revision before it; `revision`, `chain`: those after it."""

    before: int
    revision: int
    chain: int
    keys: Sequence[bytes]
    runs: Sequence[Run]

    def revisions(self) -> Iterator[Revision]:
        """`before` + 1 to `revision`, without a gap. The last one has the chain digest, which covers all of them."""
        for first, bodies, single in self.runs:
            if not single:
                yield Revision(first, bodies, digest_bytes(self.chain) if first == self.revision else b"")
                continue
            for number, body in enumerate(bodies, first):
                yield Revision(number, (body,), digest_bytes(self.chain) if number == self.revision else b"")


@dataclass(slots=True)
class EntryChanges:
    """What the entry that is being applied has changed so far. One store and its writers share it.

    The writers append: the keys of each write, and a run for each series of puts and for each revision that they end.
    `MetaStore.apply` takes both lists at the end and starts new ones. No methods: this is on the path of every put.
    """

    keys: list[bytes] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


class StoreListener:
    """A listener of a `MetaStore`, called in the order in which `MetaStore.listen` names its listeners.

    Every method runs inside the store's own step: it must be quick, must not wait and must not write to the store.
    """

    def applied(self, changes: AppliedEntry) -> None:
        """After each entry that has written keys."""

    def reloaded(self) -> None:
        """After the whole state was replaced by a snapshot of the group."""

    def saving(self) -> None:
        """A flush begins: it writes the present state, between two entries, to the file."""

    def flushed(self, keys: Sequence[bytes], rows: Rows) -> None:
        """The flush is in the file, with these rows of KEY; `keys` are their keys, in order."""
