"""A recovery in progress reports its progress, and accepts another catch-up difference (issue 3, R4, R12)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import palisade
from palisade.metastore.requests import DeleteRange, Put
from palisade.recovery.decision import Case
from palisade.recovery.errors import SourceUnavailable
from palisade.recovery.report import Counts, RecoveryOutcome, RecoveryPhase, RecoveryProgress, RecoveryRecorder
from palisade.vault.change import Revision
from tests.support.hand_clock import Clock
from tests.support.recovery_world import Bench, Node

API = Path(palisade.__file__).parent / "api"
DOCS = Path(__file__).parents[2] / "docs"


def missed(bench: Bench, revisions: int) -> None:
    for number in range(revisions):
        bench.cluster.do(Put(b"/k/%d" % (number % 50), b"%d" % number))


def slow(node: Node, at: Callable[[int], None], seconds: float = 0.01) -> None:
    """The listener takes its time for each revision; `at` is called with its number."""

    def hear(revision: Revision) -> None:
        node.clock.time += seconds
        at(revision.number)

    node.recorded.on_revision = hear


def test_progress_contains_speed_and_remaining_time() -> None:
    assert RecoveryProgress(RecoveryPhase.REPLAY, 0, 100, "revisions", 3.0).per_s is None
    assert RecoveryProgress(RecoveryPhase.REPLAY, 50, 0, "revisions", 2.0).remaining_s is None
    half = RecoveryProgress(RecoveryPhase.REPLAY, 50, 100, "revisions", 2.0)
    assert (half.per_s, half.remaining_s) == (25.0, 2.0)
    assert RecoveryProgress(RecoveryPhase.SNAPSHOT, 120, 100, "keys", 2.0).remaining_s == 0
    assert json.loads(json.dumps(half.as_dict())) == {
        "phase": "replay", "done": 50, "total": 100, "unit": "revisions", "seconds": 2.0, "per_s": 25.0,
        "remaining_s": 2.0,
    }  # fmt: skip


def test_names_of_phases_are_documented_as_they_are_shown() -> None:
    """One was `tell`, which appeared in metrics, status and logs."""
    names = [phase.value for phase in RecoveryPhase]
    assert names == ["ask", "snapshot", "eviction", "start", "notify", "replay"]
    schemas = json.loads((API / "openapi.json").read_text())["components"]["schemas"]
    assert schemas["RecoveryProgress"]["properties"]["phase"]["enum"] == names
    assert f"`phase`: {', '.join(names)} |" in (DOCS / "metrics.md").read_text()
    text = " ".join((DOCS / "http-api.md").read_text().split())
    phases = re.search(r"Phases are (.*?)\. `total`", text)
    assert phases is not None
    assert re.findall(r"`(\w+)`", phases[1]) == names


def test_report_in_progress_includes_the_present_phase() -> None:
    watch = Clock()
    recorder = RecoveryRecorder("n1", watch.now)
    with recorder.phase(RecoveryPhase.ASK):
        watch.time += 1
    with recorder.phase(RecoveryPhase.REPLAY):
        watch.time += 4
        recorder.step(RecoveryPhase.REPLAY, 20, 80, "revisions")
        watch.time += 1
        report = recorder.report_now()
        assert (report.seconds, dict(report.phases)) == (6.0, {RecoveryPhase.ASK: 1.0, RecoveryPhase.REPLAY: 5.0})
        assert (recorder.progress.seconds, recorder.progress.per_s) == (5.0, 4.0)
    ended = recorder.end(RecoveryOutcome.DONE)
    watch.time += 100
    assert recorder.report_now() is ended
    assert dict(ended.phases) == {RecoveryPhase.ASK: 1.0, RecoveryPhase.REPLAY: 5.0}


async def test_replay_reports_every_commit_with_slow_listeners() -> None:
    """The requested batch is one; it is many commits."""
    bench = Bench()
    await bench.once()
    missed(bench, 500)
    node = bench.node()
    slow(node, lambda number: None)
    await node.recover()
    done = [each.done for each in node.progress if each.phase is RecoveryPhase.REPLAY and each.unit]
    assert done == sorted(done)
    assert len(done) > 20
    assert {each.total for each in node.progress if each.phase is RecoveryPhase.REPLAY and each.unit} == {500}
    assert done[-1] == 500


async def test_progress_is_visible_during_the_recovery_only() -> None:
    bench = Bench()
    await bench.once()
    missed(bench, 300)
    node = bench.node()
    seen: list[tuple[RecoveryOutcome, Case | None, int, int]] = []

    def look(number: int) -> None:
        under_way = node.follower.under_way
        assert under_way is not None
        report = under_way.report_now()
        seen.append((report.outcome, report.case, under_way.progress.done, report.lm))

    assert node.follower.under_way is None
    slow(node, look)
    await node.recover()
    assert node.follower.under_way is None
    assert {(outcome, case) for outcome, case, _, _ in seen} == {(RecoveryOutcome.RUNNING, Case.B)}
    assert 0 < seen[200][2] < 300
    assert {lm for *_, lm in seen} == {bench.cluster.store.revision}
    assert [report.outcome for report in node.follower.reports] == [RecoveryOutcome.DONE]


async def test_snapshot_counts_keys_while_fetching() -> None:
    bench = Bench(writes=0)
    for number in range(400):
        bench.cluster.do(Put(b"/k/%04d" % number, b"x" * 2000))
    await bench.once()
    for number in range(100, 160):
        bench.cluster.do(Put(b"/k/%04d" % number, b"changed"))
    for number in range(20):
        bench.cluster.do(DeleteRange(b"/k/%04d" % number))
    bench.compact()
    node = bench.node()
    report = await node.recover()
    snapshot = [each for each in node.progress if each.phase is RecoveryPhase.SNAPSHOT and each.unit]
    assert (snapshot[-1].done, snapshot[-1].total) == (80, 80)
    assert all(each.done <= each.total for each in snapshot)
    assert report.keys == Counts(kept=320, evicted=20, fetched=60)


async def test_wait_for_the_metadata_store_is_reported() -> None:
    bench = Bench()
    node = bench.node()
    left = [5]

    def fail() -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise SourceUnavailable("no majority")

    node.source.before["state"] = fail
    await node.recover()
    waited = [each for each in node.progress if each.phase is RecoveryPhase.ASK and each.seconds]
    assert len(waited) == 4, "the first of five waits is reported before it begins"
    assert [each.seconds for each in waited] == sorted(each.seconds for each in waited)


@pytest.mark.parametrize("wanted", [150, 400, 10**12])
async def test_larger_difference_applies_to_the_recovery_in_progress(wanted: int) -> None:
    """R4, "changeable at run time": not only from the next round on, which may be an hour away."""
    bench = Bench()
    lv = (await bench.once()).vault.revision
    missed(bench, 1000)
    node = bench.node(difference=0)

    def look(number: int) -> None:
        if number == lv + 300:
            node.difference.value = wanted

    slow(node, look)
    report = await node.recover()
    behind = bench.cluster.store.revision - node.vault.revision
    commit = 21
    assert report.outcome is RecoveryOutcome.DONE
    assert min(wanted, 700) - commit <= behind <= wanted
    assert report.difference == wanted
    assert node.recorded.revisions == list(range(lv + 1, node.vault.revision + 1))


async def test_smaller_difference_applies_to_the_recovery_in_progress() -> None:
    bench = Bench()
    lv = (await bench.once()).vault.revision
    missed(bench, 300)
    node = bench.node(difference=200)

    def look(number: int) -> None:
        if number == lv + 10:
            node.difference.value = 0
        if number == lv + 290:
            missed(bench, 150)

    slow(node, look)
    report = await node.recover()
    assert node.vault.revision == bench.cluster.store.revision
    assert (report.revisions_replayed, report.difference) == (450, 0)
