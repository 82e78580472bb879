"""Which answers wait for a release: what the write and read path knows of fencing.

A write or read that touches no strict region passes untouched, at the cost of looking at its key. Of the others the
answer is made as ever and then waits: after it, no node shows what the write has replaced.

A prefix may become strict while a write is on its way, and what counts is what it is at the revision of the write. So
it is decided again when the write is applied, unless nothing has changed; and nothing can have changed unseen at a node
that has applied that revision, or that holds a lease: a region is in force only once every holder has staged it. What
was answered before, or elsewhere, the change of the region itself waits for (`RegionAdmin`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palisade.base.key_text import key_text
from palisade.metastore.requests import Put, Range, prefix_end
from palisade.metastore.result_codec import revision_of
from palisade.raftgroup.proposals import Applied
from palisade.service.own_lease import OwnLease
from palisade.service.release_waiters import ReleaseWaiters, Told
from palisade.service.strict_commands import OWN, Prefixes, is_strict, writes_own
from palisade.wire.fencing_errors import ReadPending, ReleasePending, ReservedKey


class StrictResponses:
    """`waits_for`: for which nodes the oldest change waits, in words, as far as this node knows. `has_own`: whether
    there are keys of the cluster's own. `lease`: of this node; what its vault was staged may be later than what is
    applied here."""

    def __init__(
        self,
        released: ReleaseWaiters,
        waits_for: Callable[[], str],
        has_own: Callable[[], bool],
        lease: OwnLease,
    ) -> None:
        self.released = released
        self._waits_for = waits_for
        self._has_own = has_own
        self.lease = lease
        self._sources: tuple[Prefixes, Prefixes] = ((), ())
        self._prefixes: Prefixes = (OWN,)

    @property
    def prefixes(self) -> Prefixes:
        """Whatever is strict begins with one of them, and so does what is the cluster's own; the same object as long
        as nothing has changed."""
        applied, holder = self.released.log.prefixes, self.lease.holder
        staged = holder.prefixes if holder is not None else ()
        if applied is not self._sources[0] or staged is not self._sources[1]:
            self._sources = applied, staged
            union = tuple(dict.fromkeys((OWN, *applied, *staged)))
            self._prefixes = self._prefixes if union == self._prefixes else union
        return self._prefixes

    # Writes

    def classify(self, request: Any, *, own: bool) -> bool:
        """Whether the request touches a strict region. `own`: it may write what is the cluster's own.

        Raises ReservedKey. What is the cluster's own is strict, so most requests are looked at once."""
        if type(request) is Put:
            if not request.key.startswith(self.prefixes):
                return False
        elif not is_strict(request, self.prefixes):
            return False
        if not own:
            self.check_reserved(request)
        return True

    def check_reserved(self, request: Any) -> None:
        """Raises ReservedKey for a write to what is the cluster's own."""
        key = writes_own(request, self._has_own)
        if key is not None:
            raise ReservedKey(
                f"{key_text(key)}: keys under {OWN.decode()} are the cluster's own. Use /v1/regions and /v1/catalog, "
                "or palisade region and palisade catalog; delete around them"
            )

    def knows(self, prefixes: Prefixes) -> bool:
        """Whether exactly these are strict, also at revisions that this node has not applied yet."""
        holder = self.lease.holder
        return self.prefixes is prefixes and holder is not None and holder.serves

    def when_applied(self, applied: Applied, until: float, told: Told) -> None:
        self.released.applied.when(last_revision(applied), until, told)

    def when_released(self, applied: Applied, until: float, told: Told) -> None:
        self.released.when(last_revision(applied), until, told)

    def as_it_stands(self, applied: Applied) -> Applied | ReleasePending:
        """Of one write whose time is over: as it is, where it is released or was refused, else pending."""
        return applied if self.released.is_reached(last_revision(applied)) else self.late(applied)

    def late(self, applied: Applied) -> ReleasePending:
        return self.pending(last_revision(applied))

    def pending(self, revision: int) -> ReleasePending:
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


def last_revision(applied: Applied) -> int:
    results = applied.results
    return revision_of(results[0]) if len(results) == 1 else max(map(revision_of, results), default=0)


OWN_KEYS = Range(OWN, prefix_end(OWN), limit=1, keys_only=True)
