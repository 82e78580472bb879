"""Publication of segments: all or none, with publishers that race, crash and are abandoned (issue 17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.catalog import publication
from palisade.catalog.errors import BadField, CatalogError, DamagedRow, NewerRow, NotAllowed
from palisade.catalog.publication import Manifest, PublicationPlan, abandoned, plan
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId

EMPTY = Manifest("flights")


def record(start: int = 0, end: int = 4, version: int = 1, partition: int = 0, core: int = 1) -> SegmentRecord:
    segment = Segment("flights", SegmentId(Interval(start, end), version, partition))
    return SegmentRecord(segment, core, 10, 100, "sha256:" + "0" * 64, replicas=1)


def present(*records: SegmentRecord) -> dict[Segment, SegmentRecord]:
    return {each.segment: each for each in records}


def test_small_publication_is_one_transaction() -> None:
    made = plan(EMPTY, {}, [record(0, 4), record(4, 8)])
    assert made.opening is None
    assert made.closing == Manifest("flights", last=1)
    assert [SegmentRecord.from_bytes(*put).generation for put in made.parts[0]] == [1, 1]


def test_large_publication_is_pending_until_its_last_part() -> None:
    wanted = [record(number, number + 1) for number in range(2_500)]
    made = plan(Manifest("flights", last=4, pending=(2,)), {}, wanted)
    assert made.opening == Manifest("flights", last=5, pending=(2, 5))
    assert made.closing == Manifest("flights", last=5, pending=(2,))
    assert [len(part) for part in made.parts] == [1_000, 1_000, 500]
    assert all(len(key) + len(value) < 1_000 for part in made.parts for key, value in part)


@pytest.mark.parametrize(
    ("known", "wanted", "text"),
    [
        ([], [], "publish at least one"),
        ([], [replace(record(), segment=Segment("weather", record().segment.id))], "not of data source flights"),
        ([record()], [record()], "exists already"),
        ([record().marked_unused()], [record()], "exists already"),
        ([], [record(), record()], "exists already"),
        ([record(version=3)], [record(version=2)], "version 3 is published for an overlapping interval"),
        ([record(0, 8, version=3)], [record(2, 4, version=2)], "version 3 is published for an overlapping interval"),
        ([record(0, 4)], [record(2, 6)], "overlapping interval of 0 to 4 ms"),
        ([], [record(0, 4), record(2, 6)], "overlapping interval of 0 to 4 ms"),
        ([record(partition=0, core=1)], [record(partition=1, core=2)], "1 in the others"),
        ([], [record(partition=0, core=2)], "core partition 1 of 2 is not published"),
    ],
)
def test_publication_that_contradicts_is_refused(
    known: list[SegmentRecord], wanted: list[SegmentRecord], text: str
) -> None:
    with pytest.raises((BadField, NotAllowed), match=text):
        plan(Manifest("flights", last=9), present(*known), wanted)


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        ([record(version=1)], [record(version=2)]),
        ([record(version=3).marked_unused()], [record(version=2)]),
        ([record()], [record(partition=1)]),
        ([], [record(partition=0, core=2), record(partition=1, core=2)]),
        ([record(0, 4)], [record(4, 8)]),
    ],
)
def test_publication_that_replaces_or_appends_is_accepted(
    known: list[SegmentRecord], wanted: list[SegmentRecord]
) -> None:
    assert plan(Manifest("flights", last=9), present(*known), wanted).generation == 10


def test_manifest_refuses_too_many_pending_publications() -> None:
    manifest = EMPTY
    for _ in range(publication.PENDING_MAX):
        manifest = manifest.with_pending()
    with pytest.raises(NotAllowed, match="64 pending publications"):
        manifest.with_pending()


def test_abandoning_a_generation_that_is_visible_is_refused() -> None:
    with pytest.raises(NotAllowed, match="generation 1 of data source flights is not pending"):
        abandoned(Manifest("flights", last=1), present(record()), 1)


@pytest.mark.parametrize("manifest", [Manifest("flights", 1), Manifest("flights", 9, (2, 9))])
def test_manifest_round_trips(manifest: Manifest) -> None:
    assert Manifest.from_bytes(manifest.key, manifest.to_bytes()) == manifest


@pytest.mark.parametrize(
    "packed",
    [b"", b"{}", b'{"last":0,"pending":[]}', b'{"last":3,"pending":[4]}', b'{"last":3,"pending":[2,1]}',
     b'{"last":3,"pending":[1,1]}', b'{"last":3,"pending":"1"}', b'{"last":true,"pending":[]}'],
)  # fmt: skip
def test_manifest_that_contradicts_itself_is_damaged(packed: bytes) -> None:
    with pytest.raises(DamagedRow):
        Manifest.from_bytes(EMPTY.key, packed)


def test_manifest_of_a_newer_version_is_refused() -> None:
    with pytest.raises(NewerRow, match="manifests/flights has format 2"):
        Manifest.from_bytes(EMPTY.key, b'{"format":2,"last":3,"pending":[]}')


@given(st.binary(max_size=100))
def test_bytes_that_are_no_manifest_raise_only_errors_of_the_catalog(packed: bytes) -> None:
    with pytest.raises(CatalogError):
        Manifest.from_bytes(EMPTY.key, packed)


class Store:
    """Records and the manifest; a transaction compares the revision of the manifest."""

    def __init__(self) -> None:
        self.records: dict[Segment, SegmentRecord] = {}
        self.manifest, self.revision = EMPTY, 0

    def write(self, seen: int, puts: tuple[tuple[bytes, bytes], ...], manifest: Manifest) -> bool:
        if seen != self.revision:
            return False
        found = (SegmentRecord.from_bytes(*put) for put in puts)
        self.records |= {each.segment: each for each in found}
        self.manifest, self.revision = manifest, self.revision + 1
        return True

    def visible(self) -> set[Segment]:
        return {segment for segment, each in self.records.items() if self.manifest.is_visible(each)}


def publish(store: Store, wanted: list[SegmentRecord]) -> Iterator[bool | None]:
    """One transaction a step; True once it is published. It begins again where another publisher came first."""
    while True:
        try:
            made = plan(store.manifest, store.records, wanted)
        except NotAllowed:
            return
        seen = store.revision
        if made.opening is None:
            yield None
            if store.write(seen, made.parts[0], made.closing):
                yield True
                return
            continue
        yield None
        if store.write(seen, (), made.opening):
            yield from staged(store, made)
            return


def staged(store: Store, made: PublicationPlan) -> Iterator[bool | None]:
    for number, part in enumerate(made.parts, 1):
        yield None
        if made.generation not in store.manifest.pending:
            return
        last = number == len(made.parts)
        store.write(store.revision, part, store.manifest.without_pending(made.generation) if last else store.manifest)
    yield True


def sweep(store: Store, generation: int) -> None:
    for key in abandoned(store.manifest, store.records, generation):
        del store.records[next(segment for segment in store.records if segment.key == key)]
    store.manifest, store.revision = store.manifest.without_pending(generation), store.revision + 1


def play(seed: int) -> int:
    """Three publishers of overlapping data in any order of steps; some crash, and are swept at the end.

    Returns the number of publications in several transactions that were completed.
    """
    draw, store = Random(seed), Store()
    running: list[tuple[set[Segment], Iterator[bool | None]]] = []
    for version in (1, 2, 3):
        wanted = [record(start, start + 2, version) for start in range(0, draw.choice([2, 4, 8]), 2)]
        running.append(({each.segment for each in wanted}, publish(store, wanted)))
    published: set[Segment] = set()
    large = 0
    while running:
        chosen = draw.choice(running)
        ended = draw.random() < 0.1
        for step in () if ended else (next(chosen[1], "over"),):
            published |= chosen[0] if step is True else set()
            large += step is True and len(chosen[0]) > publication.OPERATIONS_MAX
            ended = step is True or step == "over"
        if ended:
            running.remove(chosen)
        assert store.visible() == published
    for generation in store.manifest.pending:
        sweep(store, generation)
    assert store.visible() == published
    assert set(store.records) == published
    assert not store.manifest.pending
    return large


def play_all() -> None:
    assert sum(map(play, range(200))) > 50


@pytest.fixture
def _three_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that some publications are staged, in two parts."""
    monkeypatch.setattr(publication, "OPERATIONS_MAX", 3)


@pytest.mark.usefixtures("_three_operations")
def test_publications_are_visible_as_a_whole_or_not_at_all() -> None:
    play_all()


FAULTS: dict[str, Callable[..., object]] = {
    "with_pending": Manifest.with_visible,
    "is_visible": lambda self, each: True,
    "without_pending": lambda self, generation: replace(self, pending=()),
}


@pytest.mark.usefixtures("_three_operations")
@pytest.mark.parametrize("name", FAULTS)
def test_random_publications_see_the_planted_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Manifest, name, FAULTS[name])
    with pytest.raises((AssertionError, NotAllowed)):
        play_all()
