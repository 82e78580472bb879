"""What a snapshot is to those who make, send and receive one: its name, its reader, its writer, its errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from palisade.base.errors import PalisadeError


@dataclass(frozen=True, slots=True)
class SnapshotMeta:
    """What a snapshot stands for. `id` names one byte-exact stream of pieces; `size_bytes` is an estimate."""

    id: str
    index: int
    term: int
    size_bytes: int | None


class SnapshotReader(Protocol):
    """A consistent state of the machine, read piece by piece while the machine goes on."""

    @property
    def meta(self) -> SnapshotMeta: ...
    def chunk(self, number: int) -> bytes | None:
        """The piece with this number (0-based; about 1 MiB), None past the end. The last one may be asked again.

        Raises SnapshotGone.
        """
        ...

    def close(self) -> None: ...


class SnapshotWriter(Protocol):
    """Where a received snapshot is put together. Nothing of it is visible before `finish`."""

    @property
    def next_chunk(self) -> int:
        """The number of the piece that is needed next (greater than 0 when an earlier transfer is resumed)."""
        ...

    def write(self, number: int, data: bytes) -> None: ...
    async def finish(self) -> None:
        """Check the whole, make it durable, and make it the state of the machine: `applied` is meta's afterwards.

        Raises SnapshotInvalid, and the machine is as it was, when the pieces do not make up a whole.
        """
        ...

    def abort(self) -> None: ...


class SnapshotInvalid(PalisadeError):
    """A received snapshot is not whole or not of this format; it is thrown away and asked for again."""

    code = "snapshot-invalid"


class SnapshotGone(PalisadeError):
    """A snapshot that is being sent had to be given up: open a new one and send that from its beginning."""

    code = "snapshot-gone"
