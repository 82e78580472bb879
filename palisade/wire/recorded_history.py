"""The files of a recorded history: what clients requested, when, and what they got. Pure.

A file is a sequence of msgpack objects. Maps are about the file:

    {"format": "palisade-history", "version": 1, "client": id, "clock": id, "clock_ns": n, "wall_ns": n}   the first
    {"dropped": n}    n operations are missing here, because the buffer was full
    {"closed": true}  the client was closed, and no operation is missing at the end
    {"feed": [first, last]}  the file has every committed revision from first to last

Arrays are operations, or revisions as a change feed has them:

    [number, invoked_ns, completed_ns, wall_ms, kind, promise, outcome, revision, error, wrote, saw, covered]
    ["committed", revision, [[key, deleted, digest], ...]]

`invoked_ns` and `completed_ns` are on the clock `clock`, which the files of one machine share; `clock_ns` is its time
at the wall clock's `wall_ns`. `completed_ns` is nil without a response. `wrote`, `saw` and `covered`: see
`recorded_effects.py`. Values are not in the files, only 63 bits of their XXH3.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import msgpack

from palisade.base.errors import PalisadeError
from palisade.wire.recorded_effects import Covered, Saw, Wrote

FORMAT, VERSION = "palisade-history", 1
SUFFIX = ".history"
COMMITTED = "committed"
OBJECT_BYTES_MAX = 64 * 1024 * 1024

pack: Callable[[Any], bytes] = msgpack.Packer().pack


class BadHistory(PalisadeError):
    """A file is not a recorded history, or of a newer format."""

    code = "bad-history"


class Outcome(enum.StrEnum):
    OK = "ok"
    FAILED = "failed"
    """Certainly not executed."""
    UNKNOWN = "unknown"
    """May have been executed, at any time after its invocation."""


class Promise(enum.StrEnum):
    """What a path promises about the age of a read."""

    LINEARIZABLE = "linearizable"
    FENCED = "fenced"
    """From a vault, through its fence: linearizable for strict keys; without a revision."""
    LOCAL = "local"
    """The state of one node, which may be old (`serializable`)."""
    PAST = "past"
    """The state at a given revision."""


class Recorded(NamedTuple):
    """One operation. `revision`: of the store; of a write its own; 0 if unknown."""

    number: int
    invoked_ns: int
    completed_ns: int | None
    wall_ms: int
    kind: str
    promise: str
    outcome: str
    revision: int
    error: str
    wrote: tuple[Wrote, ...]
    saw: tuple[Saw, ...]
    covered: tuple[Covered, ...]

    def packed(self) -> bytes:
        return pack(self)


class Commit(NamedTuple):
    """A revision. `changes`: (key, deleted, digest of the value)."""

    revision: int
    changes: tuple[tuple[bytes, bool, int], ...]

    def packed(self) -> bytes:
        return pack((COMMITTED, *self))


@dataclass(frozen=True, slots=True)
class RecordingHeader:
    """`clock`: which clock the times are of. Times of different clocks are compared by the wall clock."""

    client: str
    clock: str
    clock_ns: int
    wall_ns: int

    def packed(self) -> bytes:
        fields = {"client": self.client, "clock": self.clock, "clock_ns": self.clock_ns, "wall_ns": self.wall_ns}
        return pack({"format": FORMAT, "version": VERSION, **fields})


@dataclass(frozen=True, slots=True)
class Note:
    """About the file: operations that are missing, its end, or the revisions that it has."""

    dropped: int = 0
    closed: bool = False
    feed: tuple[int, int] = (0, 0)

    def packed(self) -> bytes:
        if self.feed[0]:
            return pack({"feed": self.feed})
        return pack({"closed": True} if self.closed else {"dropped": self.dropped})


Entry = RecordingHeader | Recorded | Commit | Note


def entries_of(file: BinaryIO, name: str) -> Iterator[Entry]:
    """The header, then the others in order. An incomplete object at the end is ignored: the client was killed while it
    wrote. Raises BadHistory, which names the file."""
    unpacker = msgpack.Unpacker(file, max_buffer_size=OBJECT_BYTES_MAX)
    try:
        values = iter(unpacker)
        first = next(values, None)
        if first is None:
            return
        yield _header(first, name)
        for value in values:
            yield _entry(value)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise BadHistory(f"{name} is damaged ({type(error).__name__}: {error}): remove the file") from None


def _header(value: Any, name: str) -> RecordingHeader:
    if type(value) is not dict or value.get("format") != FORMAT:
        raise BadHistory(f"{name} is not a recorded history: name a folder that holds only {SUFFIX} files of clients")
    if value["version"] != VERSION:
        raise BadHistory(
            f"{name} has version {value['version']} of the format, this program reads {VERSION}: use a newer one"
        )
    return RecordingHeader(value["client"], value["clock"], value["clock_ns"], value["wall_ns"])


def _entry(value: Any) -> Entry:
    if type(value) is dict:
        return Note(value.get("dropped", 0), value.get("closed", False), tuple(value.get("feed", (0, 0))))
    if value[0] == COMMITTED:
        return Commit(value[1], tuple((key, deleted, digest) for key, deleted, digest in value[2]))
    *fields, wrote, saw, covered = value
    effects = tuple(map(Wrote._make, wrote)), tuple(map(Saw._make, saw)), tuple(map(Covered._make, covered))
    return Recorded._make((*fields, *effects))


def packed_file(header: RecordingHeader, entries: Iterable[Recorded | Commit | Note]) -> Iterator[bytes]:
    """The content of a file, for histories that were recorded otherwise."""
    yield header.packed()
    for entry in entries:
        yield entry.packed()
