"""The entries that this node has proposed as a leader, until an entry at their index is applied.

The applied entry decides: it is the proposed one, and its proposals end with their results; or it is the entry of
another leader, and its proposals are displaced. They are in no log then, so they may be proposed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palisade.raftgroup.ports import Entry
from palisade.raftgroup.proposals import Proposal, end_applied


class ProposedEntries:
    """Several terms may have proposed an entry at one index."""

    def __init__(self) -> None:
        self._batches: dict[int, list[tuple[int, Sequence[Proposal]]]] = {}
        """By the index of their entry, each with the term of its entry."""
        self._displaced: list[Proposal] = []

    def add(self, entry: Entry, batch: Sequence[Proposal]) -> None:
        """The commands of `batch` were appended as `entry`."""
        self._batches.setdefault(entry.index, []).append((entry.term, batch))

    def applied(self, index: int, term: int, results: Sequence[Any]) -> None:
        """The entry (index, term) was applied; `results` has one for each of its commands."""
        for proposed_in, batch in self._batches.pop(index, ()):
            if proposed_in == term:
                end_applied(batch, index, term, results)
            else:
                self._displaced.extend(batch)

    def forget_to(self, index: int) -> None:
        """A snapshot has replaced the log up to `index`: the end of these entries is not seen here."""
        self._batches = {at: batches for at, batches in self._batches.items() if at > index}

    def take_displaced(self) -> list[Proposal]:
        """Proposals that will never be applied as they were proposed."""
        displaced, self._displaced = self._displaced, []
        return displaced
