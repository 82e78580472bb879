"""The timeline against a model that evaluates each moment separately (S1, seed 003, issue 17)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random
from typing import Literal

import pytest

from palisade.catalog import timeline as module
from palisade.catalog.errors import BadField, NotAllowed
from palisade.catalog.timeline import Interval, SegmentId, ServingState, Timeline, TimelineSegment
from palisade.catalog.timeline import _Members as Members

TIMES = range(7)
ALWAYS = Interval(TIMES.start, TIMES.stop)
LOADING, QUERYABLE, UNSERVED = ServingState
Step = tuple[Literal["put"], TimelineSegment] | tuple[Literal["remove"], SegmentId]
Answer = tuple[int, int, int, tuple[int, ...]]
"""From, to, version, partitions."""

STEPS = 30
SEEDS = range(200)
CORNERS = (0, 2, 3, 6)


def random_steps(seed: int) -> list[Step]:
    """Puts of new segments and changes of state; every third step removes a segment that is there, if there is one."""
    draw, done, used = Random(seed), list[Step](), list[SegmentId]()
    for _ in range(STEPS):
        if used and draw.random() < 0.35:
            done.append(("remove", used.pop(draw.randrange(len(used)))))
            continue
        interval = Interval(*sorted(draw.sample(CORNERS, 2)))
        found = SegmentId(interval, draw.randrange(3), draw.randrange(3))
        state = draw.choice([LOADING, QUERYABLE, QUERYABLE, QUERYABLE, UNSERVED])
        done.append(("put", TimelineSegment(found, core_of(interval, found.version), state)))
        used = [*(each for each in used if each != found), found]
    return done


def core_of(interval: Interval, version: int) -> int:
    """One number for each chunk, so that random segments do not contradict each other."""
    return 1 + (interval.start_ms + version) % 2


def segment(start: int, end: int, version: int, partition: int = 0, core: int = 1) -> TimelineSegment:
    return TimelineSegment(SegmentId(Interval(start, end), version, partition), core, QUERYABLE)


def apply(timeline: Timeline, used: dict[SegmentId, TimelineSegment], step: Step) -> None:
    if step[0] == "put":
        timeline.put(step[1])
        used[step[1].id] = step[1]
    else:
        timeline.remove(step[1])
        used.pop(step[1], None)


def moment(used: dict[SegmentId, TimelineSegment], at: int) -> tuple[Interval, int] | None:
    """The chunk that answers for one millisecond."""
    chunks = {(each.interval, each.version) for each in used if each.interval.start_ms <= at < each.interval.end_ms}
    complete = [
        (interval, version)
        for interval, version in chunks
        if all(
            (found := used.get(SegmentId(interval, version, number))) is not None and found.state is not LOADING
            for number in range(core_of(interval, version))
        )
    ]
    return max(complete, key=lambda chunk: (chunk[1], chunk[0]), default=None)


def modelled(used: dict[SegmentId, TimelineSegment], asked: Interval) -> list[Answer]:
    found: list[Answer] = []
    before = None
    for at in range(*asked):
        chunk = moment(used, at)
        if chunk is not None and chunk == before:
            found[-1] = (found[-1][0], at + 1, *found[-1][2:])
        elif chunk is not None:
            parts = [number for number in range(3) if (each := used.get(SegmentId(*chunk, number))) and each.settled]
            found.append((at, at + 1, chunk[1], tuple(parts)))
        before = chunk
    return found


def answered(timeline: Timeline, asked: Interval) -> list[Answer]:
    return [
        (piece.start_ms, piece.end_ms, piece.chunk.version, tuple(each.id.partition for each in piece.chunk.segments))
        for piece in timeline.lookup(asked)
    ]


def check(done: list[Step]) -> None:
    timeline, used = Timeline(), dict[SegmentId, TimelineSegment]()
    for step in done:
        apply(timeline, used, step)
        assert answered(timeline, ALWAYS) == modelled(used, ALWAYS)
    assert list(timeline) == [used[each] for each in sorted(used)]
    assert len(timeline) == len(used)
    chosen = {at: moment(used, at) for at in range(*ALWAYS)}
    hidden = [
        each
        for each in sorted(used)
        if all((chunk := chosen[at]) and chunk[1] > each.version for at in range(*each.interval))
    ]
    assert timeline.overshadowed() == hidden
    for asked in (Interval(*pair) for pair in combinations(TIMES, 2)):
        assert answered(timeline, asked) == modelled(used, asked)
        check_publication(timeline, used, asked)


def check_publication(timeline: Timeline, used: dict[SegmentId, TimelineSegment], asked: Interval) -> None:
    overlapping = [each for each in used if each.interval.overlaps(asked)]
    assert timeline.highest_version(asked) == max((each.version for each in overlapping), default=None)
    for version in range(3):
        others = {each.interval for each in overlapping if each.version == version} - {asked}
        assert timeline.contradicting(asked, version) == min(others, default=None)


def check_all() -> None:
    for seed in SEEDS:
        check(random_steps(seed))


def test_timeline_answers_as_the_model_does() -> None:
    check_all()


def any_settled(members: Members, key: tuple[Interval, int]) -> module.TimelineChunk | None:
    found = tuple(each for _, each in sorted(members.segments.items()) if each.settled)
    return module.TimelineChunk(*key, found) if found else None


def all_settled(members: Members, key: tuple[Interval, int]) -> module.TimelineChunk | None:
    """An appended partition that is loading hides the chunk."""
    return members_as_chunk(members, key) if all(each.settled for each in members.segments.values()) else None


def oldest_first(interval: Interval, chunks: list[module.TimelineChunk]) -> list[module.VisibleChunk]:
    newest = max((chunk.version for chunk in chunks), default=0)
    turned = [module.TimelineChunk(chunk.interval, newest - chunk.version, chunk.segments) for chunk in chunks]
    back = {(chunk.interval, newest - chunk.version): chunk for chunk in chunks}
    return [piece._replace(chunk=back[piece.chunk.interval, piece.chunk.version]) for piece in drawn(interval, turned)]


members_as_chunk, drawn = Members.as_chunk, module.drawn
FAULTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "incomplete-chunks-overshadow": (Members, "as_chunk", any_settled),
    "appended-partitions-hide-their-chunk": (Members, "as_chunk", all_settled),
    "older-versions-win": (module, "drawn", oldest_first),
    "long-intervals-are-not-found": (module, "length_class", lambda interval: 0),
    "pieces-are-not-joined": (module, "joined", lambda pieces: pieces),
    "neighbours-are-not-joined": (module, "bisect_right", module.bisect_left),
    "unused-segments-stay": (Timeline, "remove", lambda self, segment: None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_model_sees_the_planted_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError):
        check_all()


def test_newer_version_answers_once_all_core_partitions_are_queryable() -> None:
    timeline = Timeline([segment(0, 4, 1), segment(0, 4, 2, 0, core=2)])
    assert answered(timeline, Interval(0, 4)) == [(0, 4, 1, (0,))]
    timeline.put(segment(0, 4, 2, 1, core=2))
    assert answered(timeline, Interval(0, 4)) == [(0, 4, 2, (0, 1))]


def test_older_version_answers_for_the_rest_of_its_interval() -> None:
    timeline = Timeline([segment(0, 8, 1), segment(2, 4, 2)])
    assert answered(timeline, Interval(1, 7)) == [(1, 2, 1, (0,)), (2, 4, 2, (0,)), (4, 7, 1, (0,))]
    timeline.remove(SegmentId(Interval(2, 4), 2, 0))
    assert answered(timeline, Interval(1, 7)) == [(1, 7, 1, (0,))]


def test_segment_with_replication_factor_0_still_overshadows() -> None:
    """Otherwise the older version would come back when the newer one is no longer served."""
    newer = TimelineSegment(SegmentId(Interval(0, 4), 2, 0), 1, UNSERVED)
    assert answered(Timeline([segment(0, 4, 1), newer]), Interval(0, 4)) == [(0, 4, 2, (0,))]


def test_timeline_refuses_another_number_of_core_partitions() -> None:
    timeline = Timeline([segment(0, 4, 1, 0, core=2)])
    with pytest.raises(NotAllowed, match="partition 1 of version 1: 3 core partitions, but 2 in the others"):
        timeline.put(segment(0, 4, 1, 1, core=3))
    assert len(timeline) == 1


@pytest.mark.parametrize(
    ("interval", "version", "partition", "core", "text"),
    [
        (Interval(4, 4), 1, 0, 1, "the end must be later"),
        (Interval(4, 3), 1, 0, 1, "the end must be later"),
        (Interval(0, 1), -1, 0, 1, "must not be negative"),
        (Interval(0, 1), 1, -1, 1, "must not be negative"),
        (Interval(0, 1), 1, 0, 0, "core_partitions: is 0"),
    ],
)
def test_segment_with_impossible_fields_is_refused(
    interval: Interval, version: int, partition: int, core: int, text: str
) -> None:
    with pytest.raises(BadField, match=text):
        TimelineSegment(SegmentId(interval, version, partition), core, QUERYABLE)
