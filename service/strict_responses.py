"""The answers of a node's service, held back until what they tell is released: what the service sees of fencing.

A write or read that touches no strict region passes untouched, at the cost of looking at its key. Of the others the
answer is made as ever and then waits: so whoever hears it can rely on nobody being shown what it replaces.

A prefix may become strict while a write is on its way, and what counts is what it is at the revision of the write. So
it is looked at again when the outcome comes, unless nothing has changed; and nothing can have changed unseen at a node
that has applied that revision, or that holds a lease: a region is in force only once every holder has staged it. What
was answered before, or elsewhere, the change of the region itself waits for (`RegionBook`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metastore.requests import DeleteRange, Put, Range, Txn, prefix_end
from metastore.result_codec import revision_of
from raftgroup.proposals import Applied
from service.fencing_errors import ReadPending, ReleasePending, ReservedKey
from service.ports import Done, Outcome
from service.release_waiters import Released
from service.strict_commands import OWN, Prefixes, is_strict, writes_own

Late = Callable[[Applied], None]
"""What tells an outcome that was not released in time."""


class StrictAnswers:
    """`waits_for`: for whom the oldest change waits, in words, as far as this node knows. `has_own`: whether there are
    keys of the cluster's own. `staged`: what the vault of this node knows to be strict, which may be later than what
    is applied here. `holds_lease`: whether it is served by now."""

    def __init__(
        self,
        released: Released,
        waits_for: Callable[[], str],
        has_own: Callable[[], bool],
        *,
        staged: Callable[[], Prefixes],
        holds_lease: Callable[[], bool],
    ) -> None:
        self.released = released
        self._waits_for = waits_for
        self._has_own = has_own
        self._staged = staged
        self._holds_lease = holds_lease
        self._sources: tuple[Prefixes, Prefixes] = ((), ())
        self._prefixes: Prefixes = ()

    @property
    def prefixes(self) -> Prefixes:
        """Whatever is strict begins with one of them; the same object as long as nothing has changed."""
        applied, staged = self.released.log.prefixes, self._staged()
        if applied is not self._sources[0] or staged is not self._sources[1]:
            self._sources = applied, staged
            union = tuple(dict.fromkeys((*applied, *staged)))
            self._prefixes = self._prefixes if union == self._prefixes else union
        return self._prefixes

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
        """What tells `done`, at once or later."""
        prefixes = self.prefixes
        if is_strict(request, prefixes):
            return self.hold(done, timeout_s)

        def told(outcome: Outcome) -> None:
            if is_strict(request, self.prefixes):
                self.hold(done, timeout_s)(outcome)
            else:
                done(outcome)

        return self.looked_at_again(prefixes, done, told, timeout_s, self._all_pending(done))

    def looked_at_again(self, prefixes: Prefixes, done: Done, again: Done, timeout_s: float, late: Late) -> Done:
        """`done` where what was strict when it was proposed (`prefixes`) still is, `again` where that is not known,
        `late` where it is not known in time."""

        def ended(outcome: Outcome) -> None:
            if not isinstance(outcome, Applied) or (self.prefixes is prefixes and self._holds_lease()):
                done(outcome)
                return
            revision, until = last_revision(outcome), self.released.now() + timeout_s
            self.released.applied.when(revision, until, lambda in_time: (again if in_time else late)(outcome))

        return ended

    def hold(self, done: Done, timeout_s: float, late: Late | None = None) -> Done:
        """The time for the release is what the proposal has left of it. `late`: by default all of it is pending."""
        return Held(self.released, done, late or self._all_pending(done), self.released.now() + timeout_s)

    def _all_pending(self, done: Done) -> Late:
        return lambda outcome: done(self.late(last_revision(outcome)))

    def as_it_stands(self, outcome: Applied) -> Outcome:
        """Of one write, now that its time is over: as it is, where it is released or was refused, else pending."""
        revision = last_revision(outcome)
        return outcome if self.released.is_reached(revision) else self.late(revision)

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


class Held:
    """An answer to a strict write: called with its outcome, it passes it on when that is released, or is too late."""

    __slots__ = ("_done", "_late", "_outcome", "_released", "_until")

    def __init__(self, released: Released, done: Done, late: Late, until: float) -> None:
        self._released, self._done, self._late, self._until = released, done, late, until

    def __call__(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Applied):
            self._done(outcome)
            return
        self._outcome = outcome
        self._released.when(last_revision(outcome), self._until, self._told)

    def _told(self, in_time: bool) -> None:
        (self._done if in_time else self._late)(self._outcome)


def last_revision(outcome: Applied) -> int:
    results = outcome.results
    return revision_of(results[0]) if len(results) == 1 else max(map(revision_of, results), default=0)


OWN_KEYS = Range(OWN, prefix_end(OWN), limit=1, keys_only=True)
