"""The answers of a node's service, held back until what they tell is released: what the service sees of fencing.

A write or read that touches no strict region passes untouched, at the cost of looking at its key. Of the others the
answer is made as ever and then waits: so whoever hears it can rely on nobody being shown what it replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metastore.requests import DeleteRange, Put, Range, Txn, prefix_end
from metastore.result_codec import revision_of
from node.fencing.commands import OWN, Prefixes, is_strict, writes_own
from node.fencing.errors import ReadPending, ReleasePending, ReservedKey
from node.fencing.released import Released
from node.group_face import Done, Outcome
from raftgroup.proposals import Applied


class StrictAnswers:
    """`waits_for`: for whom the oldest change waits, in words, as far as this node knows. `has_own`: whether there are
    keys of the cluster's own."""

    def __init__(self, released: Released, waits_for: Callable[[], str], has_own: Callable[[], bool]) -> None:
        self.released = released
        self._waits_for = waits_for
        self._has_own = has_own

    @property
    def prefixes(self) -> Prefixes:
        return self.released.log.prefixes

    # Writes

    def check_user(self, request: Any) -> None:
        """Raises ReservedKey for a write to what is the cluster's own."""
        if isinstance(request, Put | DeleteRange | Txn) and is_strict(request, (OWN,)):
            key = writes_own(request, self._has_own)
            if key is not None:
                raise ReservedKey(
                    f"{key[:64]!r}: keys under {OWN.decode()} are the cluster's own. Use /v1/regions and /v1/catalog, "
                    "or palisade region and palisade catalog; delete around them"
                )

    def held(self, request: Any, done: Done, timeout_s: float) -> Done:
        """`done`, or one that tells it later."""
        return self.hold(done, timeout_s) if is_strict(request, self.prefixes) else done

    def hold(self, done: Done, timeout_s: float) -> Done:
        """The time for the release is what the proposal has left of it."""
        until = self.released.now() + timeout_s

        def held(outcome: Outcome) -> None:
            if not isinstance(outcome, Applied):
                done(outcome)
                return
            revision, left = max(map(revision_of, outcome.results), default=0), until - self.released.now()
            self.released.when(revision, left, lambda in_time: done(outcome if in_time else self.late(revision)))

        return held

    def late(self, revision: int) -> ReleasePending:
        return ReleasePending.of(revision, self._waits_for())

    # Reads

    def is_pending(self, request: Any) -> bool:
        """Whether what it reads has a strict change that is not released. To be asked in the turn that reads."""
        log = self.released.log
        if log.settled:
            return False
        if isinstance(request, Range):
            return log.is_pending(request.key, request.range_end)
        return is_strict(request, self.prefixes)

    async def seen(self, revision: int, timeout_s: float) -> None:
        """Wait until what was read at `revision` is released. Raises ReadPending."""
        if not await self.released.until(revision, timeout_s):
            raise ReadPending(
                f"what was read has a strict change up to revision {revision} that is not released yet"
                f"{self._waits_for()}: read again in a moment"
            )


OWN_KEYS = Range(OWN, prefix_end(OWN), limit=1, keys_only=True)
