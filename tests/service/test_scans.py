"""Scans: pages of one revision from any replica, changes between revisions, pins of readers (issue 18)."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from palisade.client import Client
from palisade.metastore.errors import Compacted, FutureRevision, InvalidRequest, TooManyPins
from palisade.metastore.lineage import Lineage
from palisade.metastore.requests import DeleteRange, Put
from palisade.service import scans as scans_module
from palisade.wire.scan_pages import BadPage, ChangePosition, KeyCounts, ScannedChange, ScannedRow, changes_of, rows_of
from tests.support.fake_group import FakeGroup

ALL = b"\0", b"\0"


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.metastore.change_feed.ROWS_PER_SLICE", 7)
    monkeypatch.setattr(scans_module, "ROWS_PER_SLICE", 7)
    monkeypatch.setattr(scans_module, "SLICES_PER_PAGE", 2)
    monkeypatch.setattr(scans_module, "STRIDE", 4)


async def rows_at(client: Client, counts: KeyCounts, key: bytes = b"\0", end: bytes = b"\0") -> list[ScannedRow]:
    found, at = list[ScannedRow](), key
    while True:
        page, until = await client.scan_rows(at, end, counts.revision, counts.lineage)
        found += rows_of(page)
        if until is None:
            return found
        at = until


async def changes_between(
    client: Client, counts: KeyCounts, first: int, last: int, key: bytes = b"\0", end: bytes = b"\0"
) -> list[ScannedChange]:
    found, at = list[ScannedChange](), ChangePosition(first)
    while True:
        page, until = await client.scan_changes(key, end, at, last, counts.lineage)
        found += changes_of(page)
        if until is None:
            return found
        at = until


async def write_some(client: Client, rng: random.Random, count: int) -> dict[int, dict[bytes, bytes]]:
    """revision -> the state at it."""
    state: dict[bytes, bytes] = {}
    states: dict[int, dict[bytes, bytes]] = {}
    for number in range(count):
        if rng.random() < 0.1:
            keys = rng.sample(range(40), 12)
            puts = [Put(b"k%02d" % key, b"t%d" % number) for key in keys]
            result = await client.txn(success=puts)
            state = state | {put.key: put.value for put in puts}
        else:
            key = b"k%02d" % rng.randrange(40)
            if rng.random() < 0.3 and key in state:
                result = await client.txn(success=[DeleteRange(key)])
                state = {name: value for name, value in state.items() if name != key}
            else:
                result = await client.txn(success=[Put(key, b"v%d" % number)])
                state = {**state, key: b"v%d" % number}
        states[result.revision] = state
    return states


async def test_scan_of_each_revision_returns_its_state_while_writes_go_on(client: Client) -> None:
    states = await write_some(client, random.Random(1), 120)
    for revision in random.Random(2).sample(sorted(states), 12):
        counts = await client.scan_counts(*ALL, revision)
        await client.put("k05", "later")
        rows = await rows_at(client, counts)
        assert {row.key: row.value for row in rows} == states[revision]
        assert [row.key for row in rows] == sorted(states[revision])
        at = [number for number, row in enumerate(rows) if row.key in counts.samples]
        assert counts.keys == len(rows)
        assert len(at) == len(counts.samples)
        assert all(right - left <= 4 for left, right in pairwise([*at, len(rows)]))


async def test_scan_of_a_part_returns_only_its_keys(client: Client) -> None:
    states = await write_some(client, random.Random(3), 60)
    counts = await client.scan_counts(b"k10", b"k20")
    rows = await rows_at(client, counts, b"k10", b"k20")
    assert [row.key for row in rows] == sorted(key for key in states[counts.revision] if b"k10" <= key < b"k20")


async def test_changes_lead_from_each_state_to_the_next(client: Client) -> None:
    """Transactions of 12 puts are divided between pages, and no change is lost or repeated."""
    states = await write_some(client, random.Random(4), 120)
    counts = await client.scan_counts(*ALL)
    state: dict[bytes, bytes] = {}
    changes = await changes_between(client, counts, 1, counts.revision)
    for number, change in enumerate(changes):
        row, previous = change.row, change.previous
        assert (previous.value if previous else None) == state.get(row.key)
        state = {key: value for key, value in state.items() if key != row.key}
        if row.version:
            state[row.key] = row.value
        after = changes[number + 1].row.mod_revision if number + 1 < len(changes) else 0
        if after != row.mod_revision:
            assert state == states[row.mod_revision]
    assert sorted({change.row.mod_revision for change in changes}) == sorted(states)
    assert len({(change.row.mod_revision, change.sub) for change in changes}) == len(changes)


async def test_changes_of_a_range_begin_and_end_where_requested(client: Client) -> None:
    await write_some(client, random.Random(5), 80)
    counts = await client.scan_counts(*ALL)
    every = await changes_between(client, counts, 1, counts.revision)
    part = await changes_between(client, counts, 20, 60, b"k10", b"k30")
    assert part == [
        change for change in every if 20 <= change.row.mod_revision <= 60 and b"k10" <= change.row.key < b"k30"
    ]


async def test_changes_of_blocks_with_many_revisions_begin_and_end_at_each_revision(client: Client) -> None:
    """Plain puts of one batch share a block; transactions have blocks of their own."""
    for text in (b"one", b"two"):
        await client.put_many((b"k%02d" % number, text) for number in range(30))
        await client.txn(success=[Put(b"k%02d" % number, text) for number in range(3)])
    counts = await client.scan_counts(*ALL)
    every = await changes_between(client, counts, 1, counts.revision)
    assert [change.row.mod_revision for change in every if not change.sub] == list(range(2, counts.revision + 1))
    for first in range(2, counts.revision + 1, 3):
        for last in range(first, counts.revision + 1, 5):
            part = await changes_between(client, counts, first, last)
            assert part == [change for change in every if first <= change.row.mod_revision <= last]


async def test_scan_of_a_compacted_or_a_future_revision_is_refused(client: Client) -> None:
    states = await write_some(client, random.Random(6), 30)
    counts = await client.scan_counts(*ALL, 10)
    await client.compact(20)
    with pytest.raises(Compacted):
        await rows_at(client, counts)
    with pytest.raises(Compacted):
        await client.scan_counts(*ALL, 10)
    with pytest.raises(Compacted):
        await changes_between(client, counts, 19, 25)
    with pytest.raises(FutureRevision):
        await changes_between(client, counts, 20, max(states) + 1)
    assert (await changes_between(client, counts, 20, 20))[0].row.mod_revision == 20


async def test_scan_that_began_in_another_history_is_refused(client: Client) -> None:
    """After a restore, the same revision number has another content."""
    await client.put("a", "1")
    counts = await client.scan_counts(*ALL)
    with pytest.raises(InvalidRequest, match="begin a new scan"):
        await client.scan_rows(*ALL, counts.revision, Lineage(counts.lineage.cluster_id, 7))


async def test_pin_holds_compaction_back_until_it_is_released(client: Client) -> None:
    await write_some(client, random.Random(7), 30)
    counts = await client.scan_counts(*ALL, 10)
    assert 0 < await client.pin(*ALL, "job", 10, 60_000) <= 60_000
    await client.compact(20)
    assert await rows_at(client, counts)
    await client.unpin(*ALL, "job")
    await client.compact(21)
    with pytest.raises(Compacted):
        await rows_at(client, counts)


async def test_pin_is_released_only_with_the_range_that_it_was_set_for(client: Client) -> None:
    """A caller needs the right to read that range."""
    await write_some(client, random.Random(7), 30)
    counts = await client.scan_counts(*ALL, 10)
    await client.pin(*ALL, "job", 10, 60_000)
    await client.unpin(b"a", b"b", "job")
    await client.compact(20)
    assert await rows_at(client, counts)


async def test_pins_of_readers_leave_room_for_recovering_nodes(client: Client, group: FakeGroup) -> None:
    await client.put("a", "1")
    half = group.store.limits.pins_max // 2
    for number in range(half):
        await client.pin(*ALL, f"job-{number}", 2, 60_000)
    with pytest.raises(TooManyPins):
        await client.pin(*ALL, "one-more", 2, 60_000)
    assert await client.pin(*ALL, "job-0", 2, 60_000) > 0


async def test_pages_without_values_have_all_else(client: Client) -> None:
    await client.put("a", "1" * 1_000)
    await client.put("a", "2" * 1_000)
    await client.delete("a")
    await client.put("b", "3" * 1_000)
    counts = await client.scan_counts(*ALL)
    at = counts.revision, counts.lineage
    whole, bare = [(await client.scan_rows(*ALL, *at, values=values))[0] for values in (True, False)]
    assert list(rows_of(bare)) == [row._replace(value=b"") for row in rows_of(whole)]
    first = ChangePosition(1)
    changes = [(await client.scan_changes(*ALL, first, *at, values=values))[0] for values in (True, False)]
    assert list(changes_of(changes[1])) == [
        each._replace(row=each.row._replace(value=b""), previous=each.previous and each.previous._replace(value=b""))
        for each in changes_of(changes[0])
    ]
    assert len(bare) < 1_000 > len(changes[1])


async def test_page_of_an_older_node_has_the_values(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.put("a", "1")
    counts, call = await client.scan_counts(*ALL), Client._call

    async def older(self: Client, name: str, *arguments: object) -> object:
        if len(arguments) > 4:
            raise InvalidRequest(f"call {name}: takes 5 positional arguments but 6 were given")
        return await call(self, name, *arguments)

    monkeypatch.setattr(Client, "_call", older)
    page, _ = await client.scan_rows(*ALL, counts.revision, counts.lineage, values=False)
    assert [row.value for row in rows_of(page)] == [b"1"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("scan_count", ["a", b"b", 0]),
        ("scan_count", [b"", b"b", 0]),
        ("scan_count", [b"a", b"", 0]),
        ("scan_count", [b"a", b"b", -1]),
        ("scan_rows", [b"a", b"b", 1, ["x"]]),
        ("scan_rows", [b"a", b"b", 1, ["x", 1], "no"]),
        ("scan_changes", [b"a", b"b", 1, 1, ["x", 1]]),
        ("scan_changes", [b"a", b"b", [1, 0], 1, ["x", 1], 0]),
        ("scan_changes", [b"a", b"b", [1, "x"], 1, ["x", 1]]),
        ("pin", [b"a", b"b", "", 1, 1]),
        ("pin", [b"a", b"b", "x" * 5_000, 1, 1]),
        ("pin", [b"a", b"b", "x", 1, 1 << 50]),
        ("unpin", [b"a", b"b", 7]),
    ],
)
async def test_malformed_scan_calls_are_refused(client: Client, name: str, arguments: list[object]) -> None:
    with pytest.raises(InvalidRequest):
        await client._call(name, *arguments)


@pytest.mark.parametrize("unpack", [rows_of, changes_of])
def test_torn_page_is_refused_at_every_byte(unpack: Callable[[bytes], object]) -> None:
    page = b"".join(b"\0" * 8 for _ in range(20))
    with pytest.raises(BadPage):
        list(unpack(page[:-1]))  # type: ignore[call-overload]


@pytest.mark.parametrize("bytes_max", [0, 1, 200, 1_000, 5_000, 1_000_000])
async def test_changes_up_to_a_number_of_bytes_end_with_a_complete_revision(client: Client, bytes_max: int) -> None:
    await write_some(client, random.Random(8), 90)
    counts = await client.scan_counts(*ALL)
    bounds = b"k10", b"k30"
    for first in (2, 17, counts.revision):
        end = await client.scan_bytes(*bounds, first, counts.revision, counts.lineage, bytes_max)
        assert first <= end <= counts.revision
        assert end == first or await bytes_of(client, counts, first, end, *bounds) <= bytes_max
        if end < counts.revision:
            assert await bytes_of(client, counts, first, end + 1, *bounds) > bytes_max


async def bytes_of(client: Client, counts: KeyCounts, first: int, last: int, key: bytes, end: bytes) -> int:
    size, at = 0, ChangePosition(first)
    while at is not None:
        page, at = await client.scan_changes(key, end, at, last, counts.lineage)
        size += len(page)
    return size


async def test_first_revision_since_a_time_is_found(client: Client, group: FakeGroup) -> None:
    await write_dated(client, group, 60)
    counts = await client.scan_counts(*ALL)
    times = {each.row.mod_revision: each.wall_ms for each in await changes_between(client, counts, 2, counts.revision)}
    assert len(set(times.values())) > 20
    for moment in {moment + step for moment in times.values() for step in (-1, 0, 1)}:
        expected = min((revision for revision, at in times.items() if at >= moment), default=counts.revision + 1)
        assert await client.scan_since(*ALL, moment) == expected


async def test_time_before_the_oldest_retained_revision_is_refused(client: Client, group: FakeGroup) -> None:
    """The times of compacted revisions are unknown: the first one since then may be among them."""
    await write_dated(client, group, 30)
    counts = await client.scan_counts(*ALL)
    assert await client.scan_since(*ALL, 0) == 2
    oldest = (await changes_between(client, counts, 20, 20))[0].wall_ms
    await client.compact(20)
    with pytest.raises(Compacted, match="may have been compacted: the oldest that can still be read is 20"):
        await client.scan_since(*ALL, oldest)
    assert await client.scan_since(*ALL, oldest + 1) > 20


async def write_dated(client: Client, group: FakeGroup, count: int) -> None:
    """Every other write a second after the one before it."""
    for number in range(count):
        group.clock.advance(number % 2)
        await client.put(f"k{number % 7:02d}", str(number))
