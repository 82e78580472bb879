"""A client records each operation once, with its outcome. Recording never delays or fails a request (issue 18)."""

from __future__ import annotations

import asyncio
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from palisade.api.stream.server import StreamServer
from palisade.client import Client
from palisade.client.recording import UNWRITTEN_BYTES_MAX, Recorder
from palisade.client.recording_files import Recording
from palisade.client.sync_client import SyncClient
from palisade.metastore.command_codec import PUT_RESULT, RANGE_RESULT, operation_fields
from palisade.metastore.errors import KeyNotFound
from palisade.metastore.requests import Range
from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
from palisade.wire.fencing_errors import ReleasePending
from palisade.wire.recorded_effects import digest_of
from palisade.wire.recorded_history import Entry, Note, Recorded, RecordingHeader, entries_of
from palisade.wire.stream_frames import FrameKind
from tests.support.threaded_node import ThreadedNode


def entries_in(folder: Path) -> list[Entry]:
    found: list[Entry] = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            found += entries_of(file, path.name)
    return found


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def operations_in(folder: Path) -> list[Recorded]:
    return [entry for entry in entries_in(folder) if isinstance(entry, Recorded)]


class Held:
    """Files in memory, written at once or not at all."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self.content, self.closed, self.is_slow = b"", False, is_slow

    @property
    def unwritten_bytes(self) -> int:
        return len(self.content) if self.is_slow else 0

    def write(self, chunk: bytes) -> None:
        self.content += chunk

    def close(self) -> None:
        self.closed = True

    def entries(self) -> list[Entry]:
        return list(entries_of(BytesIO(RecordingHeader("c", "boot", 0, 0).packed() + self.content), "held"))[1:]


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def recorder(held: Held) -> Recorder:
    times = iter(range(10_000_000))
    return Recorder(held, lambda: next(times), lambda: 5_000_000)


def slot_of(recorder: Recorder, content: Any, kind: FrameKind = FrameKind.WRITES) -> tuple[Any, asyncio.Future[Any]]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    return recorder.slot(kind, content, future), future


async def test_client_records_each_operation_with_its_outcome(stream: StreamServer, tmp_path: Path) -> None:
    async with Client([f"127.0.0.1:{stream.port}"], client_id="c/1", record=tmp_path / "new") as client:
        revision = (await client.put("a", "1")).revision
        await client.get("a")
        await client.get("missing")
        await client.get("a", revision=revision)
        await client.get("a", serializable=True)
        await client.delete("a", prev_kv=True)
        with pytest.raises(KeyNotFound):
            await client.put("none", ignore_value=True)
        await client.put_many([("m/1", "1"), ("m/2", "2")])
        await client.txn(success=[])
        await client.status()
    found = operations_in(tmp_path / "new")
    kinds = ["put", "range", "range", "range", "range", "deleterange", "put", "put", "put", "txn", "status"]
    assert [each.kind for each in found] == kinds
    assert [each.promise for each in found[1:5]] == ["linearizable", "linearizable", "past", "local"]
    assert [each.outcome for each in found] == ["ok"] * 6 + ["failed"] + ["ok"] * 4
    assert found[6].error == "key-not-found"
    assert found[0].wrote == ((b"a", b"", False, digest_of(b"1")),)
    assert found[1].saw == ((b"a", revision, revision, 1, digest_of(b"1"), False),)
    assert found[2].covered == ((b"missing", b"", False),)
    assert found[5].wrote == ((b"a", b"", True, None),)
    assert found[5].saw[0].before
    assert all(each.completed_ns is not None and each.invoked_ns <= each.completed_ns for each in found)
    header, *_, end = entries_in(tmp_path / "new")
    assert isinstance(header, RecordingHeader)
    assert header.client == "c/1"
    assert end == Note(closed=True)


def test_sync_client_records_too(threaded: ThreadedNode, tmp_path: Path) -> None:
    with SyncClient(threaded.address, record=str(tmp_path)) as client:
        client.put("a", "1")
    assert [(each.kind, each.outcome) for each in operations_in(tmp_path)] == [("put", "ok")]


@pytest.mark.parametrize("rows", [[], [[b"k", b"1", 3, 4, 2, 7]]])
async def test_plain_get_is_recorded_as_any_other_range(recorder: Recorder, held: Held, rows: list[Any]) -> None:
    """It has a shorter way."""
    for request in (Range(b"k"), Range(b"k", limit=1)):
        slot, _ = slot_of(recorder, operation_fields(request), FrameKind.READS)
        slot.set_result([RANGE_RESULT, 9, rows, False, len(rows)])
    recorder.close()
    short, long, _ = held.entries()
    assert isinstance(short, Recorded)
    assert isinstance(long, Recorded)
    assert short[4:] == long[4:]


async def test_write_without_a_response_is_unknown_and_may_have_written(recorder: Recorder, held: Held) -> None:
    for error in (OutcomeUnknown("x"), Unavailable("x"), ReleasePending("x", 7)):
        slot, future = slot_of(recorder, (None, b"k", b"1"))
        slot.set_exception(error)
        assert future.exception() is error
    recorder.close()
    unknown, failed, pending, end = held.entries()
    assert isinstance(unknown, Recorded)
    assert isinstance(failed, Recorded)
    assert isinstance(pending, Recorded)
    assert (unknown.outcome, len(unknown.wrote), unknown.revision) == ("unknown", 1, 0)
    assert (failed.outcome, failed.wrote) == ("failed", ())
    assert (pending.outcome, pending.revision) == ("unknown", 7)
    assert end == Note(closed=True)
    assert held.closed


async def test_outcome_is_recorded_after_the_caller_was_cancelled(recorder: Recorder, held: Held) -> None:
    slot, future = slot_of(recorder, (None, b"k", b"1"))
    future.cancel()
    assert not slot.done()
    slot.set_result([PUT_RESULT, 5])
    recorder.close()
    assert [each.revision for each in held.entries() if isinstance(each, Recorded)] == [5]


async def test_slow_disk_drops_operations_and_counts_them(recorder: Recorder, held: Held) -> None:
    held.is_slow = True
    value = b"v" * 1_000
    for _ in range(200_000):
        slot, _ = slot_of(recorder, (None, value, value))
        slot.set_result([PUT_RESULT, 5])
        if recorder.dropped:
            break
    assert len(held.content) < UNWRITTEN_BYTES_MAX + 1_000_000
    held.is_slow = False
    slot, _ = slot_of(recorder, (None, b"k", b"1"))
    slot.set_result([PUT_RESULT, 9])
    recorder.close()
    note, last, _ = held.entries()[-3:]
    assert note == Note(dropped=1)
    assert isinstance(last, Recorded)
    assert last.revision == 9


async def test_recorder_writes_by_a_timer(recorder: Recorder, held: Held) -> None:
    calls: list[Any] = []

    class Timer:
        def cancel(self) -> None:
            calls.append("cancelled")

    def call_later(_: float, function: Any) -> Timer:
        calls.append(function)
        return Timer()

    recorder.begin(call_later)
    slot, _ = slot_of(recorder, (None, b"k", b"1"))
    slot.set_result([PUT_RESULT, 5])
    assert not held.content
    calls.pop()()
    assert len(held.entries()) == 1
    recorder.close()
    assert calls[-1] == "cancelled"


async def test_files_are_rotated_and_the_oldest_removed(stream: StreamServer, tmp_path: Path) -> None:
    for number in range(4):
        recording = Recording(tmp_path, file_bytes_max=1, files_max=2)
        async with Client([f"127.0.0.1:{stream.port}"], client_id=f"c{number}", record=recording) as client:
            recorder = client._session._recorder
            assert recorder is not None
            for _ in range(3):
                await client.put("a", "1")
                recorder.flush()
    assert names_in(tmp_path) == [f"c{number}-{place:06d}.history" for number in range(4) for place in (3, 4)]
    assert len(operations_in(tmp_path)) == 4


async def test_failing_disk_ends_the_recording_and_not_the_client(
    stream: StreamServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "c-000001.history").touch()
    async with Client([f"127.0.0.1:{stream.port}"], client_id="c", record=tmp_path) as client:
        await client.put("a", "1")
    assert "recording ended, the client is not affected: client=c" in caplog.text


def test_recording_refuses_sizes_below_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Recording("x", files_max=0)


async def test_result_that_cannot_be_recorded_reaches_its_caller(recorder: Recorder, held: Held) -> None:
    slot, future = slot_of(recorder, (None, b"k", b"1"))
    slot.set_result([255])
    assert await future == [255]
    recorder.close()
    assert held.entries()[0] == Note(dropped=1)
