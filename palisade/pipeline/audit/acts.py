"""Operations of recorded histories as acts on single keys, on one time axis. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from palisade.client.call_kinds import CALL_KINDS
from palisade.metastore.requests import FROM_KEY
from palisade.pipeline.audit.key_history import ABSENT, COMMITTED, MAYBE, NEVER, SAW, WROTE, Act
from palisade.wire.recorded_effects import Covered, Wrote
from palisade.wire.recorded_history import Commit, Note, Outcome, Promise, Recorded, RecordingHeader

EXPANDED_MAX = 10_000
"""Maximum number of known keys with which one range is compared; others are not decided."""
ORDERED = (Promise.LINEARIZABLE, Promise.FENCED)
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Axis:
    """The common time of files. With one clock (one machine since its boot) that is exact. Else it is the wall clock,
    whose error widens every operation."""

    clock: str
    error_ns: int

    def times(self, header: RecordingHeader, recorded: Recorded) -> tuple[int, int]:
        shift = 0 if header.clock == self.clock else header.wall_ns - header.clock_ns
        error = 0 if self.clock else self.error_ns
        completed = recorded.completed_ns
        return recorded.invoked_ns + shift - error, NEVER if completed is None else completed + shift + error


def axis_of(headers: Sequence[RecordingHeader], clock_error_ms: int) -> Axis:
    clocks = {header.clock for header in headers}
    return Axis(clocks.pop() if len(clocks) == 1 else "", clock_error_ms * NS_PER_MS)


def name_of(header: RecordingHeader, recorded: Recorded) -> str:
    return f"{header.client}#{recorded.number}"


def is_ordered(recorded: Recorded) -> bool:
    return recorded.promise in ORDERED


def made_revision(recorded: Recorded) -> bool:
    return bool(recorded.wrote) and recorded.outcome == Outcome.OK and recorded.revision > 0


def acts_of(header: RecordingHeader, recorded: Recorded, axis: Axis, keys: Sequence[bytes] = ()) -> Iterator[Act]:
    """`keys`: sorted, those with which ranges are compared."""
    if recorded.outcome == Outcome.FAILED:
        return
    invoked, completed = axis.times(header, recorded)
    ordered, name, revision = is_ordered(recorded), name_of(header, recorded), recorded.revision
    times = (invoked, completed, recorded.wall_ms, name)
    is_known = recorded.outcome == Outcome.OK and revision > 0
    if revision > 0 and recorded.kind == "put" and not is_known:
        is_known, times = True, (invoked, NEVER, recorded.wall_ms, name)  # committed, and not acknowledged
    for wrote in recorded.wrote:
        for key in _keys_of(wrote, keys):
            own = revision if is_known and not wrote.range_end else 0
            what = WROTE if is_known else MAYBE
            yield Act(key, what, *times, revision, own, 0, 0, wrote.digest, wrote.delete, ordered)
    seen = set()
    for saw in recorded.saw:
        seen.add(saw.key)
        state = revision - saw.before if revision else 0
        versions = (saw.mod_revision, saw.create_revision, saw.version)
        yield Act(saw.key, SAW, *times, state, *versions, saw.digest, False, ordered)
    for covered in recorded.covered:
        state = revision - covered.before if revision else 0
        for key in _keys_of(covered, keys):
            if key not in seen:
                yield Act(key, ABSENT, *times, state, 0, 0, 0, None, False, ordered)


def _keys_of(span: Wrote | Covered, keys: Sequence[bytes]) -> Sequence[bytes]:
    if not span.range_end:
        return (span.key,)
    first = bisect_left(keys, span.key)
    last = len(keys) if span.range_end == FROM_KEY else bisect_left(keys, span.range_end)
    return keys[first : min(last, first + EXPANDED_MAX)]


def acts_of_commit(commit: Commit) -> Iterator[Act]:
    for key, deleted, digest in commit.changes:
        yield committed(key, commit.revision, None if deleted else digest)


def committed(key: bytes, revision: int, digest: int | None) -> Act:
    """A change of the change feed; `digest` None: a deletion."""
    return Act(
        key, COMMITTED, 0, NEVER, 0, "change feed", revision, revision, 0, 0, digest, digest is None, False
    )  # fmt: skip


def has_ranges(recorded: Recorded) -> bool:
    return any(span.range_end for span in recorded.wrote) or any(span.range_end for span in recorded.covered)


# Operations as a whole.

READS = {"range"} | {name for name, kind in CALL_KINDS.items() if not kind.writes}
OF_THE_STORE = {"put", "deleterange", "txn", "range"}


class OperationRow(NamedTuple):
    """One row of the table `operations`. `completed_ns` is NEVER without a response; times are on the common axis.
    `made`: it made its revision. `ordered`: real time and its revision must agree."""

    operation: str
    client: str
    kind: str
    promise: str
    outcome: str
    error: str
    invoked_ns: int
    completed_ns: int
    wall_ms: int
    revision: int
    writes: bool
    made: bool
    ordered: bool
    ok: bool
    ranges: bool
    """It concerns keys that it does not name."""


DROPPED, FEED, CLOSED = "dropped", "feed", "closed"
NOTES = (DROPPED, FEED, CLOSED)
"""The kinds of rows about a file."""


def row_of_note(path: str, note: Note) -> OperationRow:
    """`invoked_ns`: the number of dropped operations, or the first revision of the feed; `completed_ns`: its last."""
    kind = FEED if note.feed[0] else DROPPED if note.dropped else CLOSED
    first, last = note.feed if note.feed[0] else (note.dropped, 0)
    return OperationRow(path, path, kind, "", "", "", first, last, 0, 0, False, False, False, False, False)


def row_of(header: RecordingHeader, recorded: Recorded, axis: Axis) -> OperationRow:
    ok = recorded.outcome == Outcome.OK
    return OperationRow(
        name_of(header, recorded), header.client, recorded.kind, recorded.promise, recorded.outcome, recorded.error,
        *axis.times(header, recorded), recorded.wall_ms, recorded.revision,
        recorded.kind not in READS, made_revision(recorded),
        ok and recorded.revision > 0 and recorded.kind in OF_THE_STORE and recorded.promise == Promise.LINEARIZABLE,
        ok,
        has_ranges(recorded),
    )  # fmt: skip
