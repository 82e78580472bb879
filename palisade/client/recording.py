"""Records the operations of a client: `Client(..., record="folder")`. The audit job reads the files (docs/pipeline.md).

The recorder takes the place of the slot of each request (`pending_request.Slot`), so retries of a request are one
operation, and an operation is recorded when the session has its outcome, also if its caller stopped waiting. A client
without it has one comparison per request more.

Recording never delays or fails a request: if the disk is slower than the client, operations are dropped and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from palisade.client.call_kinds import CALL_KINDS
from palisade.client.pending_request import Slot
from palisade.metastore.command_codec import (
    PUT_RESULT,
    RANGE_RESULT,
    REFUSED,
    decode_command,
    decode_operation,
    decode_result,
    operation_fields,
)
from palisade.metastore.requests import Put, Range
from palisade.raftgroup.errors import NodeFailed, OutcomeUnknown
from palisade.wire.fencing_errors import ReleasePending
from palisade.wire.recorded_effects import Effects, digest_of, effects_of, possible
from palisade.wire.recorded_history import Note, Outcome, Promise, pack
from palisade.wire.stream_frames import FrameKind

_log = logging.getLogger(__name__)
FLUSH_S = 1.0
CHUNK_BYTES = 128 * 1024
UNWRITTEN_BYTES_MAX = 8 * 1024 * 1024
NS_PER_MS = 1_000_000
PLAIN_GET = operation_fields(Range(b"k"))[2:]
_UNKNOWN = (OutcomeUnknown, NodeFailed, ReleasePending)
_LINEARIZABLE, _OK = Promise.LINEARIZABLE.value, Outcome.OK.value


class Timer(Protocol):
    def cancel(self) -> None: ...


class RecordFiles(Protocol):
    """Where records go. `write` must not block; `unwritten_bytes` are those that it has not written yet."""

    @property
    def unwritten_bytes(self) -> int: ...
    def write(self, chunk: bytes) -> None: ...
    def close(self) -> None: ...


class Recorder:
    """`clock_ns`: a monotonic clock that all processes of the machine share; `wall_ns`: the wall clock."""

    def __init__(self, files: RecordFiles, clock_ns: Callable[[], int], wall_ns: Callable[[], int]) -> None:
        self._files, self.clock_ns, self.wall_ns = files, clock_ns, wall_ns
        self._chunk = bytearray()
        self._number = self.dropped = 0
        self._closed = False
        self._timer: Timer | None = None

    def begin(self, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        """Write what there is each `FLUSH_S`: a process that is killed loses no more than that."""
        self.flush()
        self._timer = call_later(FLUSH_S, lambda: self.begin(call_later))

    def slot(self, kind: FrameKind, content: Any, slot: Slot) -> Slot:
        """The slot for the session, instead of `slot`. Call it when the request is sent."""
        self._number += 1
        return RecordedSlot(self, self._number, kind, content, slot)

    def add(self, packed: bytes) -> None:
        if self._closed:
            return
        if self._files.unwritten_bytes > UNWRITTEN_BYTES_MAX:
            self.dropped += 1
            return
        if self.dropped:
            self._chunk += Note(dropped=self.dropped).packed()
            self.dropped = 0
        self._chunk += packed
        if len(self._chunk) >= CHUNK_BYTES:
            self.flush()

    def failed(self) -> None:
        """An operation cannot be recorded, which must not fail it: it counts as dropped. Call it while handling the
        error."""
        _log.exception("an operation could not be recorded")
        self.dropped += 1

    def flush(self) -> None:
        if self._chunk:
            self._files.write(bytes(self._chunk))
            self._chunk.clear()

    def close(self) -> None:
        """Write everything. Later outcomes are not recorded."""
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self.dropped:
            self._chunk += Note(dropped=self.dropped).packed()
        self._chunk += Note(closed=True).packed()
        self.flush()
        self._closed = True
        self._files.close()


class RecordedSlot:
    """Notes the outcome of one request, and passes it on."""

    __slots__ = ("_content", "_ended", "_invoked_ns", "_kind", "_number", "_recorder", "_slot", "_wall_ns")

    def __init__(self, recorder: Recorder, number: int, kind: FrameKind, content: Any, slot: Slot) -> None:
        self._recorder, self._number, self._kind, self._content, self._slot = recorder, number, kind, content, slot
        self._ended = False
        self._wall_ns = recorder.wall_ns()
        self._invoked_ns = recorder.clock_ns()

    def done(self) -> bool:
        """False until there is an outcome, also if the caller was cancelled: its outcome is recorded, too."""
        return self._ended

    def set_result(self, wire: Any, /) -> None:
        self._ended = True
        try:
            self._add_outcome(self._recorder.clock_ns(), wire)
        except Exception:
            self._recorder.failed()
        if not self._slot.done():
            self._slot.set_result(wire)

    def set_exception(self, exception: Exception, /) -> None:
        self._ended = True
        try:
            self._add_error(self._recorder.clock_ns(), exception)
        except Exception:
            self._recorder.failed()
        if not self._slot.done():
            self._slot.set_exception(exception)

    def _add_outcome(self, completed_ns: int, wire: Any) -> None:
        if type(self._content) is tuple and self._kind is FrameKind.WRITES and wire[0] == PUT_RESULT:
            _, key, value = self._content
            effects: Any = (((key, b"", False, digest_of(value)),), (), ())
            self._add(completed_ns, ("put", _LINEARIZABLE), _OK, wire[1], "", effects)
        elif self._kind is FrameKind.READS and wire[0] == RANGE_RESULT and self._content[2:] == PLAIN_GET:
            self._add(completed_ns, ("range", _LINEARIZABLE), _OK, wire[1], "", _got(self._content[1], wire[2]))
        else:
            self._add_result(completed_ns, wire)

    def _add(
        self, completed_ns: int, what: tuple[str, str], outcome: str, revision: int, error: str, effects: Any
    ) -> None:
        times = (self._number, self._invoked_ns, completed_ns, self._wall_ns // NS_PER_MS)
        self._recorder.add(pack((*times, *what, outcome, revision, error, *effects)))

    def _add_result(self, completed_ns: int, wire: Any) -> None:
        if self._kind is FrameKind.CALL:
            self._add(completed_ns, (self._content[0], _LINEARIZABLE), _OK, 0, "", ((), (), ()))
            return
        if wire[0] == REFUSED:
            self._add_failed(completed_ns, wire[1])
            return
        request, result = self._request(), decode_result(wire)
        found, revision, promise = effects_of(request, result), int(getattr(result, "revision", 0)), promise_of(request)
        if promise is Promise.PAST:
            revision = request.revision
        self._add(completed_ns, (kind_of(request), promise.value), _OK, revision, "", _lists(found))

    def _add_failed(self, completed_ns: int, code: str) -> None:
        kind, promise = self._what()
        self._add(completed_ns, (kind, promise), Outcome.FAILED.value, 0, code, ((), (), ()))

    def _add_error(self, completed_ns: int, error: Exception) -> None:
        code = str(getattr(error, "code", type(error).__name__))
        writes = self._kind is FrameKind.WRITES or (
            self._kind is FrameKind.CALL and CALL_KINDS[self._content[0]].writes
        )
        if not (writes and isinstance(error, _UNKNOWN)):
            self._add_failed(completed_ns, code)
            return
        effects = _lists(possible(self._request())) if self._kind is FrameKind.WRITES else ((), (), ())
        revision = int(getattr(error, "revision", 0) or 0)
        self._add(completed_ns, self._what(), Outcome.UNKNOWN.value, revision, code, effects)

    def _request(self) -> Any:
        content = self._content
        if self._kind is FrameKind.READS:
            return decode_operation(list(content), 0)
        return Put(content[1], content[2]) if type(content) is tuple else decode_command(content)[0]

    def _what(self) -> tuple[str, str]:
        if self._kind is FrameKind.CALL:
            return self._content[0], _LINEARIZABLE
        request = self._request()
        return kind_of(request), promise_of(request).value


def _got(key: bytes, rows: Sequence[Any]) -> Any:
    """Of a plain get, without creating objects of the request and its result: gets are frequent."""
    if not rows:
        return (), (), ((key, b"", False),)
    _, value, create_revision, mod_revision, version, _ = rows[0]
    return (), ((key, mod_revision, create_revision, version, digest_of(value), False),), ((key, b"", False),)


def _lists(found: Effects) -> tuple[Any, Any, Any]:
    return found.wrote, found.saw, found.covered


def kind_of(request: Any) -> str:
    return type(request).__name__.lower()


def promise_of(request: Any) -> Promise:
    if isinstance(request, Range):
        if request.revision:
            return Promise.PAST
        if request.serializable:
            return Promise.LOCAL
    return Promise.LINEARIZABLE
