"""The segments of a node: what it follows, and what recovery does with them, with a crash at each step (R5)."""

from __future__ import annotations

import asyncio

import pytest

from palisade.metastore.requests import Put
from palisade.recovery.lifecycle import ComponentFailed
from palisade.recovery.report import RecoveryReport
from palisade.segments.names import assignment_key, own_prefix
from palisade.segments.segment_store import file_of
from palisade.segments.verification import version_of
from palisade.segments.view import copies_view, node_summary
from palisade.wire.segment_errors import FolderUnreadable, NoSuchSegment
from tests.support.holding_node import Ground, Refusing, day, rows
from tests.support.recovery_world import Crash, Steps
from tests.support.segment_world import SimulatedDisk
from tests.support.waiting import until


async def away_and_back() -> Ground:
    """A node that had four segments, and missed a new version, one less, one more, all of it compacted."""
    ground = Ground()
    ground.assign(1, 2, 3, 4)
    ground.compact()
    async with ground.started():
        assert ground.files.content == ground.expected
    ground.assign(2, wave=2)
    ground.unassign(3)
    ground.assign(5)
    ground.compact()
    ground.stock.asked.clear()
    return ground


def resources(report: RecoveryReport) -> dict[str, int]:
    counts = report.resources
    return {"kept": counts.kept, "evicted": counts.evicted, "fetched": counts.fetched, "missing": counts.missing}


async def test_recovery_keeps_unchanged_assigned_segments_and_replaces_the_rest() -> None:
    """R5: smart eviction. What is kept is neither written nor fetched."""
    ground = await away_and_back()
    async with ground.started() as node:
        assert ground.files.content == ground.expected
        assert resources(node.follower.reports[-1]) == {"kept": 2, "evicted": 2, "fetched": 2, "missing": 0}
        assert sorted(ground.stock.asked) == [day(2), day(5)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_crash_at_any_eviction_step_ends_like_an_undisturbed_start(after: bool) -> None:
    """Issue 3, "Shown by" 4: each step once, before it and after it."""
    seen: list[str] = []
    for step in range(1, 100):
        ground = await away_and_back()
        steps = Steps(step, after=after)
        try:
            node = ground.node(steps)
            await node.recover()
            await node.inner.stop()
            break
        except Crash:
            seen.append(steps.names[-1])
        async with ground.started():
            assert ground.files.content == ground.expected
    assert seen == ["remove", "remove", "write", "rename", "write", "rename"]


async def test_damaged_file_is_fetched_again_at_recovery() -> None:
    ground = await away_and_back()
    ground.files.content[file_of(day(1))] = rows(1)[:-1] + b"?"
    async with ground.started() as node:
        assert ground.files.content == ground.expected
        assert resources(node.follower.reports[-1])["fetched"] == 3


async def test_damaged_file_is_fetched_again_at_a_start_without_recovery() -> None:
    ground = Ground()
    ground.assign(1, 2)
    async with ground.started():
        pass
    ground.files.content[file_of(day(1))] = b""
    ground.files.content["notes"] = b"not ours"
    async with ground.started() as node:
        assert node.follower.reports[-1].snapshots == 0
        await until(lambda: ground.files.content == {**ground.expected, "notes": b"not ours"})


async def test_damaged_file_found_by_a_reader_is_fetched_again() -> None:
    ground = Ground()
    ground.assign(1)
    async with ground.started() as node:
        ground.files.content[file_of(day(1))] = b"?"
        with pytest.raises(NoSuchSegment):
            await node.holder.read(day(1), None)
        await until(lambda: ground.files.content == ground.expected)
        assert (await node.holder.read(day(1), None))[0] == rows(1)


async def test_request_for_a_missing_segment_triggers_no_fetch() -> None:
    """Two nodes that miss the same would keep each other busy."""
    ground = Ground()
    ground.assign(1)
    del ground.stock.content[day(1)]
    ground.compact()
    async with ground.started() as node:
        await until(lambda: len(ground.stock.asked) == 2)
        for _ in range(5):
            with pytest.raises(NoSuchSegment):
                await node.holder.read(day(1), None)
            await asyncio.sleep(0)
        assert len(ground.stock.asked) == 2


async def test_holder_follows_its_assignments() -> None:
    ground = Ground()
    async with ground.started() as node:
        ground.assign(1, 2, 3)
        await node.step()
        await until(lambda: ground.files.content == ground.expected)
        ground.assign(2, wave=2)
        ground.unassign(1)
        ground.cluster.do(Put(assignment_key("n2", day(9)), version_of(b"").to_value()))
        await node.step()
        await until(lambda: ground.files.content == ground.expected)
        assert set(node.holder.wanted) == {day(2), day(3)}


async def test_holder_of_a_lagging_node_applies_the_difference() -> None:
    """As a node that was paused past a compaction: recovery and component see to the same files."""
    ground = Ground()
    ground.assign(1, 2, 3)
    async with ground.started() as node:
        ground.assign(2, wave=2)
        ground.unassign(1)
        ground.assign(4)
        ground.compact()
        report = await node.recover(running=True)
        assert report.snapshots == 1
        await until(lambda: ground.files.content == ground.expected)
        assert {found: each.digest for found, each in node.holder.wanted.items()} == await node.holder.assigned()


async def test_unavailable_segment_is_reported_and_fetched_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.segments.holder.RETRY_MIN_S", 0.01)
    ground = Ground()
    ground.assign(1, 2)
    content = ground.stock.content.pop(day(1))
    ground.stock.content[day(2)] = b"wrong"
    ground.compact()
    async with ground.started() as node:
        report = node.follower.reports[-1]
        assert (report.outcome.value, resources(report)["missing"]) == ("done", 2)
        view = copies_view("n1", node.holder, 10)
        assert (view["assigned"], view["local"], view["missing"]) == (2, 0, 2)
        assert "does not have it" in view["segments"][0]["error"]
        assert "got 5 bytes" in view["segments"][1]["error"]
        ground.stock.content.update({day(1): content, day(2): rows(2)})
        await until(lambda: ground.files.content == ground.expected)
        await until(lambda: copies_view("n1", node.holder, 10)["missing"] == 0)
        assert all(row["error"] is None for row in copies_view("n1", node.holder, 10)["segments"])


async def test_full_disk_stores_the_segments_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.segments.holder.RETRY_MIN_S", 0.01)
    ground = Ground()
    ground.assign(1, 2, 3)
    ground.files.room_bytes = 2 * len(rows(1)) + 1
    ground.compact()
    async with ground.started() as node:
        assert resources(node.follower.reports[-1]) == {"kept": 0, "evicted": 0, "fetched": 2, "missing": 1}
        assert "no space left" in node.holder.tally.trouble[day(3)]
        ground.files.room_bytes = None
        await until(lambda: ground.files.content == ground.expected)


async def test_read_only_disk_is_reported_once_keeps_its_copies_and_heals(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 17: a data node without disk."""
    monkeypatch.setattr("palisade.segments.holder.RETRY_MIN_S", 0.01)
    monkeypatch.setattr("palisade.segments.holder.RETRY_MAX_S", 0.01)
    ground = Ground()
    ground.assign(1)
    async with ground.started() as node:
        ground.files.read_only = True
        ground.assign(2)
        await node.step()
        await until(lambda: ground.stock.asked.count(day(2)) >= 3)
        view = copies_view("n1", node.holder, 10)
        assert (view["local"], view["missing"]) == (1, 1)
        assert node_summary("n1", 2, view)["error"] == (
            f"segment {day(2)} not stored: the write failed: read-only file system; check the disk of the node; "
            "retrying"
        )
        assert (await node.holder.read(day(1), None))[0] == rows(1)
        logged = [line.message for line in caplog.records if "not stored" in line.message]
        assert logged == [view["segments"][0]["error"]]
        ground.files.read_only = False
        await until(lambda: ground.files.content == ground.expected)
        assert not node.holder.tally.trouble


async def test_node_whose_folder_cannot_be_read_does_not_start_and_keeps_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Issue 17: a data node without disk, at its start. An empty list of files would let it fetch everything again."""
    ground = Ground()
    ground.assign(1)
    async with ground.started():
        pass

    async def unreadable(self: SimulatedDisk) -> list[str]:
        raise NotADirectoryError(20, "Not a directory", "/data/segments")

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedDisk, "names", unreadable)
        with pytest.raises(ComponentFailed) as failed:
            await ground.node().recover()
    assert isinstance(failed.value.cause, FolderUnreadable)
    assert "Not a directory: '/data/segments'; check its permissions" in str(failed.value)
    assert ground.files.content == ground.expected
    async with ground.started() as node:
        assert resources(node.follower.reports[-1]) == {"kept": 0, "evicted": 0, "fetched": 0, "missing": 0}


async def test_file_that_cannot_be_removed_does_not_stop_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.segments.holder.RETRY_MIN_S", 0.01)
    ground = Ground()
    ground.assign(1, 2)
    async with ground.started() as node:
        ground.files.stubborn.add(file_of(day(1)))
        ground.unassign(1)
        await node.step()
        await until(lambda: "cannot remove segment" in node.holder.tally.trouble.get(day(1), ""))
        assert copies_view("n1", node.holder, 10)["extra"] == 1
        ground.files.stubborn.clear()
        await until(lambda: ground.files.content == ground.expected)


async def test_invalid_assignments_are_skipped() -> None:
    ground = Ground()
    ground.assign(1)
    for key, value in ((b"../../etc/passwd", b"x"), (day(9).encode(), b"nonsense"), (b"\xff", b"")):
        ground.cluster.do(Put(own_prefix("n1") + key, value))
    async with ground.started() as node:
        ground.cluster.do(Put(own_prefix("n1") + b"flights/..", b"y"))
        ground.cluster.do(Put(assignment_key("n1", day(1)), b"nonsense"))
        await node.step()
        await until(lambda: not ground.files.content)
        assert node.holder.wanted == {}


async def test_expired_segment_is_neither_fetched_nor_removed_by_the_holder() -> None:
    """Only retention removes it, by a rule that was read through the fence (P6, F7)."""
    ground = Ground()
    ground.assign(1, 2)
    async with ground.started() as node:
        await until(lambda: ground.files.content == ground.expected)
        ground.expired.names |= {day(1), day(4)}
        ground.assign(3, 4)
        await node.step()
        await until(lambda: file_of(day(3)) in ground.files.content)
        assert set(ground.files.content) == {file_of(day(number)) for number in (1, 2, 3)}
        assert set(await node.holder.assigned()) == {day(1), day(2), day(3)}
        view = copies_view("n1", node.holder, 10)
        assert (view["missing"], view["expired"], view["local"]) == (0, 1, 3)


async def test_trashed_segment_without_assignment_is_purged() -> None:
    ground = Ground()
    ground.assign(1, 2)
    async with ground.started() as node:
        await until(lambda: ground.files.content == ground.expected)
        ground.expired.names |= {day(1), day(2)}
        for number in (1, 2):
            assert await node.holder.trash(day(number), lambda: True)
        ground.unassign(1)
        ground.assign(2, wave=2)
        await node.step()
        await until(lambda: not ground.files.content)


async def test_refused_withdrawal_is_retried_without_another_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.segments.holder.RETRY_MIN_S", 0.01)
    ground = Ground()
    ground.announcements = refusing = Refusing(2)
    ground.assign(1)
    async with ground.started() as node:
        await until(lambda: ground.files.content == ground.expected)
        ground.unassign(1)
        await node.step()
        await until(lambda: not ground.files.content)
        assert refusing.left == 0


def test_view_of_a_node_without_segments() -> None:
    view = copies_view("n1", None, 10)
    assert (view["keeps"], view["assigned"]) == (False, 0)
    assert "without --segments" in str(node_summary("n1", 3, view)["error"])
    assert node_summary("n1", 3, None)["missing"] is None
