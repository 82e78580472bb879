"""What a recovery needs from the world: handed in, so that it runs under simulated time with crashes at every step.

Revisions, rows and sums are those of `vault/`. Everything that waits is a coroutine; whoever stops a node cancels it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palisade.base.digest import Sums
from palisade.vault.change import Revision, VaultEvent


@dataclass(frozen=True, slots=True)
class SourceState:
    """By one linearizable read. `keys`: how many live ones. `chain_at`: as asked for; None where not retained."""

    cluster_id: str
    generation: int
    latest: int
    minimal: int
    keys: int
    chain_at: bytes | None = None


@dataclass(frozen=True, slots=True)
class ClusterSums:
    """All 4,096, and the chain digest, as of one revision."""

    revision: int
    chain: bytes
    sums: Sums


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of an answer, joined (`chunks.py`), with a checksum over it. `until`: where to go on; None: that was all.

    It says everything there is to say of the keys from the start that was asked for up to `until`.
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
    """The meta storage, from wherever it can be read. Every method may raise SourceUnavailable."""

    async def state(self, chain_at: int) -> SourceState:
        """Linearizable."""
        ...

    async def pin(self, revision: int, life_s: float) -> float:
        """Keep MM at or below `revision` for about so long, from now; how long in seconds.

        One pin per node: it moves when it is asked for again. Raises SourceCompacted, PinRefused.
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
        """What there is to say of the keys that are live at `revision`, by the span (`vault.span_sums`), joined.

        Raises SourceCompacted.
        """
        ...

    async def fingerprints(self, revision: int, buckets: bytes, start: bytes, end: bytes | None) -> Chunk:
        """4 bytes for each key of these buckets that is live at `revision` (`base.digest.fingerprint_of`), joined.

        Of keys with start <= key < end. Raises SourceCompacted.
        """
        ...


class ListenerPort(Protocol):
    """The components. What one of them raises ends the recovery, and LV stays before what was being told."""

    async def start(self) -> None:
        """Start them from the vault, which is whole and at LV. Nothing is told before this has returned."""
        ...

    async def revision(self, revision: Revision) -> None:
        """The next one. It returns when every listener is done with it."""
        ...

    async def difference(self, revision: int, events: Sequence[VaultEvent], last: bool) -> None:
        """A part of what changed up to `revision`, by key and not by revision; `last` closes it."""
        ...


class Resources(Protocol):
    """What a node holds locally beside its vault: partitions, segments. All steps bear to be done twice."""

    async def local(self) -> dict[str, str]:
        """Version by id, of what is there."""
        ...

    async def assigned(self) -> dict[str, str]:
        """Version by id, of what the vault says belongs here."""
        ...

    async def evict(self, name: str) -> None:
        """Nothing of it is left afterwards, also of one that is half there or not at all."""
        ...

    async def fetch(self, name: str, version: str) -> None:
        """It is there afterwards, whole, in this version. Raises ResourceMissing where it can't be had now: whoever
        holds resources goes on trying, and what is there is evicted until then."""
        ...


class RecoveryTime(Protocol):
    def now(self) -> float:
        """Seconds; it never goes back."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class NoResources:
    """Of a node that holds nothing but its vault."""

    async def local(self) -> dict[str, str]:
        return {}

    async def assigned(self) -> dict[str, str]:
        return {}

    async def evict(self, name: str) -> None:
        """There is nothing to evict."""

    async def fetch(self, name: str, version: str) -> None:
        """Nothing is ever assigned."""
