"""The interfaces between a recovery and its environment, which runs it in simulated time with crashes at every step.

Revisions, rows and sums are those of `vault/`. Everything that waits is a coroutine; stopping a node cancels it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palisade.base.digest import Sums
from palisade.vault.change import Revision, VaultEvent


@dataclass(frozen=True, slots=True)
class SourceState:
    """By one linearizable read. `keys`: number of live keys. `chain_at`: as requested; None if not retained."""

    cluster_id: str
    generation: int
    latest: int
    minimal: int
    keys: int
    chain_at: bytes | None = None


@dataclass(frozen=True, slots=True)
class ClusterSums:
    """All 4,096 sums, and the chain digest, as of one revision."""

    revision: int
    chain: bytes
    sums: Sums


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of an answer, joined (`chunks.py`), with a checksum. `until`: where to continue; None: the end.

    It is complete for the keys from the requested start up to `until`.
    """

    payload: bytes
    checksum: bytes
    until: bytes | None


class RevisionSource(Protocol):
    """The revisions in order."""

    async def changes(self, first: int, last: int) -> Sequence[Revision]:
        """Some revisions from `first` on, up to `last`, whole and without a gap. Raises SourceCompacted.

        Waits a bounded time where there is none yet, and may then be empty.
        """
        ...


class ClusterSource(RevisionSource, Protocol):
    """The cluster's store, from wherever it can be read. Every method may raise SourceUnavailable."""

    async def state(self, chain_at: int) -> SourceState:
        """Linearizable."""
        ...

    async def pin(self, revision: int, life_s: float) -> float:
        """Keep MM at or below `revision` for about `life_s` from now; returns the actual time in seconds.

        One pin per node: a further call moves it. Raises SourceCompacted, PinRefused.
        """
        ...

    async def unpin(self) -> None: ...

    async def sums(self, revision: int) -> ClusterSums:
        """Raises SourceCompacted."""
        ...

    async def rows(self, revision: int, buckets: bytes, newer_than: int, start: bytes, end: bytes | None) -> Chunk:
        """The entries of these buckets (a bitmap) as of `revision` that were written after `newer_than`.

        Their bodies, joined, of keys with start <= key < end, in order. Raises SourceCompacted.
        """
        ...

    async def spans(self, revision: int, start: bytes) -> Chunk:
        """The spans (`vault.span_sums`) of the keys live at `revision`, joined.

        Raises SourceCompacted.
        """
        ...

    async def fingerprints(self, revision: int, buckets: bytes, start: bytes, end: bytes | None) -> Chunk:
        """4 bytes for each key of these buckets that is live at `revision` (`base.digest.fingerprint_of`), joined.

        Of keys with start <= key < end. Raises SourceCompacted.
        """
        ...


class ListenerPort(Protocol):
    """The components. An exception of one of them ends the recovery, and LV stays before the revision in progress."""

    async def start(self) -> None:
        """Start them from the vault, which is complete at LV. No notification comes before this has returned."""
        ...

    async def revision(self, revision: Revision) -> None:
        """The next revision. Returns when every listener has handled it."""
        ...

    async def difference(self, revision: int, events: Sequence[VaultEvent], last: bool) -> None:
        """A part of the changes up to `revision`, by key and not by revision; `last` ends it."""
        ...


class Resources(Protocol):
    """A node's local data beside its vault, such as segments. Every step may be executed twice."""

    async def local(self) -> dict[str, str]:
        """Versions of the present resources, by id."""
        ...

    async def assigned(self) -> dict[str, str]:
        """Versions that belong here according to the vault, by id."""
        ...

    async def evict(self, name: str) -> None:
        """Remove it completely, even if it is incomplete or missing."""
        ...

    async def fetch(self, name: str, version: str) -> None:
        """Make it present and complete in this version. Raises ResourceMissing if it is not available now: its owner
        retries, and the present version is evicted until then."""
        ...


class RecoveryTime(Protocol):
    def now(self) -> float:
        """Seconds of a monotonic clock."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class NoResources:
    """For a node that holds only its vault."""

    async def local(self) -> dict[str, str]:
        return {}

    async def assigned(self) -> dict[str, str]:
        return {}

    async def evict(self, name: str) -> None:
        """No effect: there are no resources."""

    async def fetch(self, name: str, version: str) -> None:
        """Never called: nothing is assigned."""
