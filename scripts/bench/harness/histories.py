"""A recorded history without contradictions: clients that put and read keys in turns, and the store's change feed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from palisade.wire.recorded_effects import Covered, Saw, Wrote, digest_of
from palisade.wire.recorded_history import (
    SUFFIX,
    Commit,
    Note,
    Outcome,
    Promise,
    Recorded,
    RecordingHeader,
    packed_file,
)

CLIENTS, KEYS = 8, 1_000
STEP_NS, TAKES_NS, WALL_NS = 10_000, 5_000, 1_800_000_000_000_000_000
NS_PER_MS = 1_000_000


def write_histories(folder: Path, operations: int) -> None:
    """A file for each client, and one with the change feed."""
    folder.mkdir(parents=True)
    for client in range(CLIENTS):
        write(folder, f"client{client}", operations_of(client, operations))
    write(folder, "feed", feed_of(operations))


def write(folder: Path, name: str, entries: Iterator[Recorded | Commit | Note]) -> None:
    header = RecordingHeader(name, "clock", 0, WALL_NS)
    with (folder / f"{name}-000001{SUFFIX}").open("wb") as file:
        file.writelines(packed_file(header, entries))


def operations_of(client: int, operations: int) -> Iterator[Recorded | Note]:
    """Every second operation is a put, and the one after it reads the same key through another client."""
    for number in range(client, operations, CLIENTS):
        put = number - number % 2
        key, value, revision = b"k/%04d" % (put // 2 % KEYS), digest_of(b"%d" % put), put // 2 + 2
        at_ns, kind = number * STEP_NS, "range" if number % 2 else "put"
        version = put // 2 // KEYS + 1
        seen = Saw(key, revision, put // 2 % KEYS + 2, version, value, False)
        yield Recorded(
            number, at_ns, at_ns + TAKES_NS, (WALL_NS + at_ns) // NS_PER_MS, kind, Promise.LINEARIZABLE, Outcome.OK,
            revision, "",
            () if number % 2 else (Wrote(key, b"", False, value),),
            (seen,) if number % 2 else (),
            (Covered(key, b"", False),) if number % 2 else (),
        )  # fmt: skip
    yield Note(closed=True)


def feed_of(operations: int) -> Iterator[Commit | Note]:
    last = (operations + 1) // 2 + 1
    yield Note(feed=(2, last))
    for revision in range(2, last + 1):
        put = (revision - 2) * 2
        yield Commit(revision, ((b"k/%04d" % ((revision - 2) % KEYS), False, digest_of(b"%d" % put)),))
