"""The broker's view: any order of changes, and never silently less than what is queryable (S2 to S5, seed 003)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Any

import pytest

from palisade.catalog.publication import Manifest
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId, ServingState
from palisade.segments.broker_view import BrokerView, OnMissing, SegmentAnswer, SegmentPhase
from palisade.wire.segment_errors import BrokerNotSynced, NoSuchDataSource, SegmentsUnavailable

NODES = ("a", "b")
ALWAYS = Interval(0, 10)
DIGEST = "sha256:" + "0" * 64


def segment(start: int = 0, end: int = 4, version: int = 1, partition: int = 0) -> Segment:
    return Segment("flights", SegmentId(Interval(start, end), version, partition))


S = segment()
LOADING = SegmentRecord(S, 1, 10, 100, DIGEST, replicas=1)
LOADED = LOADING.marked_loaded()

Change = Callable[[BrokerView, int], None]
"""Applies one change at a revision."""


def record(value: SegmentRecord) -> Change:
    return lambda view, revision: view.put_record(revision, value)


def manifest(last: int = 1, *pending: int) -> Change:
    return lambda view, revision: view.put_manifest(revision, Manifest("flights", last, pending))


def announced(node: str, which: Segment = S) -> Change:
    return lambda view, revision: view.announce(revision, node, which)


def withdrawn(node: str, which: Segment = S) -> Change:
    return lambda view, revision: view.withdraw(revision, node, which)


def view_after(*changes: Change, settled: int | None = None) -> BrokerView:
    """In order of revisions, from 1 on; the manifest is the last one."""
    view = BrokerView()
    for revision, change in enumerate((*changes, manifest()), 1):
        change(view, revision)
    view.settle(len(changes) + 1 if settled is None else settled)
    return view


def outcome(view: BrokerView) -> object:
    """What a query gets, without the revision."""
    try:
        answer = view.lookup("flights", ALWAYS)
    except (SegmentsUnavailable, NoSuchDataSource) as error:
        return type(error).__name__, getattr(error, "missing", None)
    return [(str(part.segment), part.nodes) for part in answer.parts], answer.unserved


NEVER_PUBLISHED = "announced, but never published"
HISTORIES: dict[str, tuple[list[Change], object]] = {
    "created": ([record(LOADING), announced("a"), record(LOADED)], ([(str(S), ("a",))], ())),
    "announced before its record": ([announced("a"), record(LOADING), record(LOADED)], ([(str(S), ("a",))], ())),
    "dropped before marked unused": (
        [record(LOADING), announced("a"), record(LOADED), withdrawn("a"), record(LOADED.marked_unused())],
        ([], ()),
    ),
    "marked unused before dropped": (
        [record(LOADING), announced("a"), record(LOADED), record(LOADED.marked_unused()), withdrawn("a")],
        ([], ()),
    ),
    "server died": (
        [record(LOADING), announced("a"), record(LOADED), withdrawn("a")],
        ("SegmentsUnavailable", (str(S),)),
    ),
    "moved from a to b": (
        [record(LOADING), announced("a"), record(LOADED), announced("b"), withdrawn("a")],
        ([(str(S), ("b",))], ()),
    ),
    "flapping server": (
        [record(LOADING), announced("a"), record(LOADED), withdrawn("a"), announced("a")],
        ([(str(S), ("a",))], ()),
    ),
    "replication factor 0": (
        [record(LOADING), announced("a"), record(LOADED), record(LOADED.with_replicas(0)), withdrawn("a")],
        ([], (S,)),
    ),
    "loaded again after replication factor 0": (
        [record(LOADED), announced("a"), record(LOADED.with_replicas(0)), record(LOADING), record(LOADED)],
        ([(str(S), ("a",))], ()),
    ),
    "died before it was loaded": ([record(LOADING), announced("a"), withdrawn("a")], ([], ())),
    "announced without a record": ([announced("a"), announced("b"), withdrawn("a")], ([], ())),
    NEVER_PUBLISHED: ([announced("a")], ("NoSuchDataSource", None)),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_view_is_the_same_for_every_order_of_callbacks(name: str) -> None:
    changes, expected = HISTORIES[name]
    changes = [*changes, manifest()] if name != NEVER_PUBLISHED else changes
    for order in permutations(enumerate(changes, 1)):
        view = BrokerView()
        for revision, change in (*order, order[0]):
            change(view, revision)
        view.settle(len(changes))
        assert outcome(view) == expected, [revision for revision, _ in order]


@pytest.mark.parametrize("sync_first", [False, True], ids=["callbacks before the sync", "the sync before callbacks"])
@pytest.mark.parametrize("name", HISTORIES)
def test_view_is_the_same_whether_a_full_sync_or_the_callbacks_come_first(name: str, sync_first: bool) -> None:
    """A sync as of each revision. The callbacks are those of all changes: the sync has some of them, and is older than
    the others."""
    changes, expected = HISTORIES[name]
    changes = [*changes, manifest()] if name != NEVER_PUBLISHED else changes
    everything = list(enumerate(changes, 1))
    for synced in range(len(changes) + 1):
        view = BrokerView()

        def sync(to: int = synced, view: BrokerView = view) -> None:
            for revision, change in everything[:to]:
                change(view, revision)
            view.settle(to)

        if sync_first:
            sync()
        for revision, change in everything:
            change(view, revision)
        if not sync_first:
            sync()
        view.settle(len(changes))
        assert outcome(view) == expected, synced


def test_segment_is_queryable_after_both_callbacks_only() -> None:
    """A late announcement: the record says loaded, at a revision up to which not everything has arrived."""
    view = view_after(record(LOADED), settled=0)
    view.settled = 0
    view.put_record(5, replace(LOADED, rows=11))
    view.put_manifest(6, Manifest("flights", 1))
    view.settle(2)
    assert outcome(view) == ([], ())
    view.announce(3, "a", S)
    assert outcome(view) == ([(str(S), ("a",))], ())


def test_restarted_broker_counts_on_segments_without_any_server() -> None:
    """It never saw an announcement; the settled record is proof that there was one."""
    assert outcome(view_after(record(LOADED))) == ("SegmentsUnavailable", (str(S),))


def test_lookup_before_the_first_sync_is_refused() -> None:
    with pytest.raises(BrokerNotSynced):
        view_after(record(LOADED), settled=0).lookup("flights", ALWAYS)


def test_lookup_of_an_unknown_data_source_is_refused() -> None:
    with pytest.raises(NoSuchDataSource, match="weather"):
        view_after(record(LOADED)).lookup("weather", ALWAYS)


def test_policies_return_what_is_left_and_the_exact_list_of_what_is_missing() -> None:
    other = segment(4, 8)
    view = view_after(record(LOADED), record(replace(LOADED, segment=other)), announced("b", other))
    with pytest.raises(SegmentsUnavailable) as caught:
        view.lookup("flights", ALWAYS)
    assert caught.value.missing == (str(S),)
    for policy in (OnMissing.WARN, OnMissing.ALLOW):
        answer = view.lookup("flights", ALWAYS, policy)
        assert [(part.segment, part.start_ms, part.end_ms, part.nodes) for part in answer.parts] == [
            (other, 4, 8, ("b",))
        ]
        assert (answer.revision, answer.missing, answer.unserved) == (4, (S,), ())
    assert view.lookup("flights", Interval(4, 6)).missing == ()


def test_segment_that_a_newer_version_cuts_in_two_is_missing_once() -> None:
    whole, inner = segment(0, 8), segment(2, 4, version=2)
    view = view_after(
        record(replace(LOADED, segment=whole)), record(replace(LOADED, segment=inner)), announced("a", inner)
    )
    with pytest.raises(SegmentsUnavailable, match="1 segment has no server") as caught:
        view.lookup("flights", ALWAYS)
    assert caught.value.missing == (str(whole),)
    assert view.lookup("flights", ALWAYS, OnMissing.ALLOW).missing == (whole,)
    view.put_record(5, replace(LOADED, segment=whole).with_replicas(0))
    view.settle(5)
    assert view.lookup("flights", ALWAYS).unserved == (whole,)


def test_newer_version_that_lost_its_servers_does_not_bring_the_older_back() -> None:
    newer = segment(version=2)
    view = view_after(
        record(LOADED),
        announced("a"),
        record(replace(LOADED, segment=newer)),
        announced("b", newer),
        withdrawn("b", newer),
    )
    assert outcome(view) == ("SegmentsUnavailable", (str(newer),))


def test_error_names_the_first_of_a_long_list_and_carries_all() -> None:
    view = view_after(*(record(replace(LOADED, segment=segment(number, number + 1))) for number in range(10)))
    with pytest.raises(SegmentsUnavailable, match=r"10 segments have no server: .* and 5 more") as caught:
        view.lookup("flights", ALWAYS)
    assert len(caught.value.missing) == 10


Key = tuple[str, Segment]
SEGMENTS = [segment(0, 4, 1), segment(0, 4, 2), segment(2, 6, 3), segment(4, 8, 1)]


class RandomHistory:
    """A true history of records and announcements, delivered in another order, some of it twice."""

    def __init__(self, seed: int) -> None:
        draw = self._draw = Random(seed)
        self._records: dict[Segment, SegmentRecord] = {}
        self._serving: set[tuple[str, Segment]] = set()
        self._manifest = Manifest("flights")
        self.truth: list[tuple[dict[Segment, SegmentRecord], frozenset[tuple[str, Segment]]]] = [({}, frozenset())]
        self.changes: list[Change] = []
        while len(self.changes) < 30:
            self._step(draw.choice(SEGMENTS), draw.choice(NODES))

    def _step(self, which: Segment, node: str) -> None:
        """As nodes and the coordinator act: a record is marked loaded only while the segment is announced."""
        found = self._records.get(which)
        draw = self._draw.random()
        if draw < 0.4:
            serves = (node, which) in self._serving
            self._serving ^= {(node, which)}
            self._add((withdrawn if serves else announced)(node, which))
        elif self._manifest.pending and draw < 0.5:
            self._publish(self._manifest.without_pending(self._draw.choice(self._manifest.pending)))
        elif found is None:
            self._begin(which)
        elif draw < 0.55:
            self._put(found.marked_unused())
        elif draw < 0.65 and found.used:
            self._put(found.with_replicas(0 if found.replicas else 1))
        elif found.used and found.replicas and not found.loaded and any(each == which for _, each in self._serving):
            self._put(found.marked_loaded())

    def _begin(self, which: Segment) -> None:
        """Either pending until a later step, or visible with the next change."""
        staged = self._draw.random() < 0.5 and len(self._manifest.pending) < 2
        then = self._manifest.with_pending() if staged else self._manifest.with_visible()
        if staged:
            self._publish(then)
        self._put(replace(LOADING, segment=which, generation=then.last))
        if not staged:
            self._publish(then)

    def _publish(self, then: Manifest) -> None:
        self._manifest = then
        self._add(lambda view, revision: view.put_manifest(revision, then))

    def _put(self, value: SegmentRecord) -> None:
        self._records[value.segment] = value
        self._add(record(value))

    def _add(self, change: Change) -> None:
        self.changes.append(change)
        last, pending = self._manifest.last, self._manifest.pending
        records = self._records.items()
        visible = {each: one for each, one in records if one.generation <= last and one.generation not in pending}
        self.truth.append((visible, frozenset(self._serving)))

    def play(self) -> None:
        """Deliver; after each delivery, what is settled is a prefix, and the view must be right about it."""
        revisions = [*range(1, len(self.changes) + 1), *self._draw.choices(range(1, len(self.changes) + 1), k=5)]
        reach = self._draw.choice([1, 3, 40])
        revisions.sort(key=lambda revision: revision + self._draw.uniform(0, reach))
        view, delivered = BrokerView(), set[int]()
        for revision in revisions:
            self.changes[revision - 1](view, revision)
            delivered.add(revision)
            settled = next(number for number in range(1, len(self.changes) + 2) if number not in delivered) - 1
            view.settle(settled)
            if settled and max(delivered) == settled:
                self._compare(view, settled)
        self._compare(view, len(self.changes))

    def _compare(self, view: BrokerView, revision: int) -> None:
        records, serving = self.truth[revision]
        check_single_states_and_counts(view)
        try:
            answer = view.lookup("flights", ALWAYS, OnMissing.WARN)
        except NoSuchDataSource:
            assert not records
            return
        assert answer.revision == revision
        for at in range(*ALWAYS):
            expected = newest(records, at)
            if expected is None or not expected.replicas:
                assert not any(part.start_ms <= at < part.end_ms for part in answer.parts)
                continue
            nodes = tuple(sorted(node for node, each in serving if each == expected.segment))
            found = [(part.segment, part.nodes) for part in answer.parts if part.start_ms <= at < part.end_ms]
            assert found == ([(expected.segment, nodes)] if nodes else [])
            assert (expected.segment in answer.missing) == (not nodes)


def check_single_states_and_counts(view: BrokerView) -> None:
    """The state of one segment, and what is counted by change, are as in the list of all."""
    states = view.states("flights")
    assert [view.state(each.record.segment) for each in states] == states
    for found in view.publications():
        assert found.written == sum(each.record.generation == found.generation for each in states)
    timed = list(view._sources["flights"].timeline) if "flights" in view._sources else []
    known = sum(len(source.entries) for source in view._sources.values())
    queryable = sum(each.state is ServingState.QUERYABLE for each in timed)
    missing = sum(each.phase is SegmentPhase.MISSING for each in states)
    assert view.counts() == (known, queryable, missing)


def newest(records: dict[Segment, SegmentRecord], at: int) -> SegmentRecord | None:
    def covers(each: Segment) -> bool:
        return each.id.interval.start_ms <= at < each.id.interval.end_ms

    settled = [one for each, one in records.items() if covers(each) and one.used and (one.loaded or not one.replicas)]
    return max(settled, key=lambda one: one.segment.id.version, default=None)


def check_all() -> None:
    for seed in range(150):
        RandomHistory(seed).play()


def test_view_is_complete_as_of_its_revision_in_random_histories() -> None:
    check_all()


def forgetful(self: BrokerView, source: object, found: SegmentId) -> None:
    """Tombstones are dropped before the earlier changes have arrived."""
    source.entries.pop(found, None)  # type: ignore[attr-defined]


def partial(self: BrokerView, *asked: object) -> SegmentAnswer:
    answer = lookup(self, *asked)  # type: ignore[arg-type]
    return replace(answer, missing=())


def without_sequence(self: BrokerView, revision: int, node: str, which: Segment, *, announced: bool) -> None:
    _, entry = self._entry(which)
    entry.nodes.pop(node, None)
    change_announcement(self, revision, node, which, announced=announced)


def unqueryable_without_server(self: BrokerView, source: object, found: SegmentId) -> None:
    """As brokers did before seed 003: a drop removes the segment from the timeline."""
    update(self, source, found)  # type: ignore[arg-type]
    if not source.entries[found].serving:  # type: ignore[attr-defined]
        source.timeline.remove(found)  # type: ignore[attr-defined]


lookup, update, change_announcement = BrokerView.lookup, BrokerView._update, BrokerView._change_announcement


def visible_at_once(self: Manifest, record: SegmentRecord) -> bool:
    return record.generation <= self.last


FAULTS: dict[str, tuple[str, Callable[..., object]]] = {
    "missing segments are not reported": ("lookup", partial),
    "a drop removes the segment": ("_update", unqueryable_without_server),
    "late callbacks count": ("_change_announcement", without_sequence),
    "pending generations are visible": ("is_visible", visible_at_once),
    "tombstones are dropped too early": ("_forget", forgetful),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_random_histories_see_the_planted_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, planted = FAULTS[fault]
    monkeypatch.setattr(Manifest if name == "is_visible" else BrokerView, name, planted)
    with pytest.raises((AssertionError, KeyError)):
        check_all()


def test_view_forgets_segments_without_record_and_server() -> None:
    view = view_after(record(LOADED), announced("a"), withdrawn("a"))
    view.remove_record(5, S)
    view.settle(5)
    assert not view._sources["flights"].entries


def test_state_of_one_segment_and_publications_do_not_visit_other_segments() -> None:
    """The coordinator counts 20 times a second, and queries ask for single segments (issue 17)."""
    view = view_after(*(record(replace(LOADING, segment=segment(at, at + 1), generation=1)) for at in range(9)))
    view.put_manifest(11, Manifest("flights", 2, (2,)))
    for at in range(9, 12):
        view.put_record(at + 3, replace(LOADING, segment=segment(at, at + 1), generation=2))
    entries = view._sources["flights"].entries = Watched(view._sources["flights"].entries)
    assert [found.written for found in view.publications()] == [3]
    assert entries.visited == 0
    found = view.state(segment(9, 10))
    assert found is not None
    assert found.phase is SegmentPhase.PENDING
    assert entries.visited == 1
    assert view.state(segment(50, 51)) is None
    assert view.state(Segment("unknown", S.id)) is None


class Watched(dict[SegmentId, Any]):
    """Counts the entries that are visited."""

    visited = 0

    def get(self, key: SegmentId, default: Any = None) -> Any:
        self.visited += 1
        return super().get(key, default)

    def __getitem__(self, key: SegmentId) -> Any:
        self.visited += 1
        return super().__getitem__(key)

    def items(self) -> Any:
        self.visited += len(self)
        return super().items()
