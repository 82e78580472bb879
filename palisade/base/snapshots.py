"""Snapshots for their creator, sender and receiver: name, reader, writer, errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from palisade.base.errors import PalisadeError


@dataclass(frozen=True, slots=True)
class SnapshotMeta:
    """Describes a snapshot. `id` identifies one byte-exact stream of pieces; `size_bytes` is an estimate."""

    id: str
    index: int
    term: int
    size_bytes: int | None


class SnapshotReader(Protocol):
    """A consistent state of the machine, read in pieces while the machine continues."""

    @property
    def meta(self) -> SnapshotMeta: ...
    def chunk(self, number: int) -> bytes | None:
        """The piece with this number (0-based), None past the end. The last piece can be read again.

        Raises SnapshotGone.
        """
        ...

    def close(self) -> None: ...


class SnapshotWriter(Protocol):
    """Assembles a received snapshot. Nothing is visible before `finish`."""

    @property
    def next_chunk(self) -> int:
        """The number of the piece needed next (above 0 when an earlier transfer is resumed)."""
        ...

    def write(self, number: int, data: bytes) -> None: ...
    async def finish(self) -> None:
        """Verify the snapshot, make it durable, and make it the state of the machine: `applied` is then that of `meta`.

        Raises SnapshotInvalid, with the machine unchanged, if the pieces are not a complete snapshot.
        """
        ...

    def abort(self) -> None: ...


class SnapshotInvalid(PalisadeError):
    """A received snapshot is incomplete or of an unknown format. It is discarded and requested again."""

    code = "snapshot-invalid"


class SnapshotGone(PalisadeError):
    """A snapshot that is being sent is no longer available: open a new one and send it from the beginning."""

    code = "snapshot-gone"
