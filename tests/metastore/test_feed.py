"""The source of a vault: whole revisions, and the state at a pinned revision (issue 3, R2, R4, R11)."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from palisade.base.digest import (
    BUCKETS,
    bitmap_of,
    bucket_of,
    fingerprint_of,
    leaf_of,
    members_of,
    next_chain,
    unpack_sums,
)
from palisade.metastore import change_feed as feed_module
from palisade.metastore.change_feed import ChangeFeed
from palisade.metastore.errors import Compacted, FutureRevision
from palisade.metastore.requests import Compact, DeleteRange, Pin, Put
from palisade.vault.change import HEADER, events_of, key_of
from palisade.vault.span_sums import SUM_MASK, unpack_spans
from tests.support.meta_driver import Driver
from tests.support.vault_feed import compact, full, state_of, write_some

ALL = members_of(bitmap_of(tuple(range(BUCKETS))))


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.metastore.change_feed.ROWS_PER_SLICE", 7)


def all_rows(
    feed: ChangeFeed, revision: int, buckets: bytes = ALL, newer_than: int = 0, between: object = None
) -> list[bytes]:
    rows, start = [], b""
    while True:
        found, until = feed.rows(revision, buckets, newer_than, start, None)
        rows += found
        if until is None:
            return rows
        start = until
        if callable(between):
            between()


def sums_at(feed: ChangeFeed, revision: int, between: object = None) -> list[int]:
    sums = feed.sums_at(revision)
    while not sums.step(3):
        if callable(between):
            between()
    return sums.sums


def keys_and_mods(rows: list[bytes]) -> list[tuple[bytes, int]]:
    return [(key_of(row), HEADER.unpack_from(row)[0]) for row in rows]


def expected_keys(driver: Driver, revision: int, newer_than: int = 0) -> list[tuple[object, ...]]:
    return [(kv[0], kv[3]) for kv in state_of(driver, revision) if kv[3] > newer_than]  # type: ignore[operator]


def test_feed_returns_whole_revisions_with_chain_digests() -> None:
    driver = full([])
    write_some(driver, random.Random(1), 100)
    feed, chain = driver.store.feed, 0
    found = feed.changes(1, 10**9, 10**9)
    assert [revision.number for revision in found] == list(range(1, driver.store.revision + 1))
    for revision in found[1:]:
        for body in revision.bodies:
            chain = next_chain(chain, leaf_of(body))
        assert chain.to_bytes(16, "big") == feed.chain_at(revision.number)
        assert len(list(events_of(revision))) == len(revision.bodies)
    assert [bool(revision.chain) for revision in found[1:]] == [False] * (len(found) - 2) + [True]
    assert found[-1].chain == driver.store.digest().chain


def test_feed_answer_is_bounded_and_not_empty_while_there_is_more() -> None:
    feed = full([(b"k%d" % n, b"v" * 100) for n in range(20)]).store.feed
    assert [r.number for r in feed.changes(5, 8, 10**6)] == [5, 6, 7, 8]
    assert [r.number for r in feed.changes(5, 20, 1)] == [5]
    assert feed.changes(22, 30, 1) == []


@pytest.mark.parametrize("since", [False, True], ids=["as they are", "as they were"])
def test_feed_slice_of_large_values_is_small_and_continues_after_it(
    since: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand values of a MiB are too many for one answer."""
    monkeypatch.setattr("palisade.metastore.change_feed.ROWS_PER_SLICE", 2_000)
    driver = full([(b"k%03d" % n, bytes(300_000)) for n in range(30)])
    revision = driver.store.revision
    if since:
        driver.all(*(Put(b"k%03d" % n, b"small") for n in range(30)))
    found, until = driver.store.feed.rows(revision, ALL, 0, b"", None)
    assert (len(found), until) == (4, b"k004")
    assert keys_and_mods(all_rows(driver.store.feed, revision)) == expected_keys(driver, revision)


def test_feed_refuses_compacted_revisions_with_mm() -> None:
    driver = full([(b"k%d" % n, b"") for n in range(20)])
    compact(driver, 12)
    feed = driver.store.feed
    for ask in (lambda: feed.changes(11, 20, 1), lambda: feed.sums_at(11), lambda: feed.rows(11, ALL, 0, b"", None)):
        with pytest.raises(Compacted) as refused:
            ask()
        assert refused.value.minimal_revision == 12
    assert feed.chain_at(11) is None
    assert feed.chain_at(12) == driver.store.chain_at(12)
    with pytest.raises(FutureRevision):
        feed.sums_at(99)


def test_feed_of_a_past_revision_is_unaffected_by_writes_and_compactions() -> None:
    """Digests and rows of the pinned revision equal those taken when it was the latest."""
    rng, driver = random.Random(7), full([])
    write_some(driver, rng, 120)
    pinned = driver.store.revision
    before, rows = unpack_sums(driver.store.digest().buckets), expected_keys(driver, pinned)
    write_some(driver, rng, 40)
    driver.do(Pin("n1", pinned, 600_000))
    driver.do(Compact(driver.store.revision))
    driver.collect_all()
    assert driver.store.minimal_revision == pinned

    def write() -> None:
        write_some(driver, rng, 2)

    feed = driver.store.feed
    assert sums_at(feed, pinned, write) == before
    assert keys_and_mods(all_rows(feed, pinned, between=write)) == rows
    newer = pinned - 30
    assert keys_and_mods(all_rows(feed, pinned, newer_than=newer, between=write)) == expected_keys(
        driver, pinned, newer
    )
    spans, start = [], b""
    while start is not None:
        part, start = feed.spans(pinned, start)
        spans += unpack_spans(part)
        write()
    assert sum(span.keys for span in spans) == len(rows)
    assert sum(span.total for span in spans) & SUM_MASK == sum(crc32(key) for key, _ in rows) & SUM_MASK
    assert [span.end for span in spans] == [*sorted(span.end for span in spans[:-1]), b""]
    alive, start = set(), b""
    while start is not None:
        found, start = feed.fingerprints(pinned, ALL, start, None)
        alive |= {found[at : at + 4] for at in range(0, len(found), 4)}
        write()
    assert alive == {fingerprint_of(key) for key, _ in rows}


def test_feed_spans_omit_deleted_keys_whose_row_still_exists() -> None:
    """Of the newest revision, and of the previous one, whose rows are all older."""
    driver = full([(b"k%02d" % n, b"") for n in range(20)])
    driver.do(DeleteRange(b"k05", b"k10"))
    revision = driver.store.revision
    for _ in range(2):
        start: bytes | None = b""
        keys = 0
        while start is not None:
            part, start = driver.store.feed.spans(revision, start)
            keys += sum(span.keys for span in unpack_spans(part))
        assert keys == 15
        driver.do(Put(b"z", b""))


def test_feed_returns_only_the_requested_buckets() -> None:
    driver = full([(b"k%d" % n, b"") for n in range(50)])
    wanted = {bucket_of(b"k7"), bucket_of(b"k30")}
    rows = all_rows(driver.store.feed, driver.store.revision, members_of(bitmap_of(tuple(wanted))))
    assert {bucket_of(key) for key, _ in keys_and_mods(rows)} == wanted
    assert {b"k7", b"k30"} <= {key for key, _ in keys_and_mods(rows)}


def test_feed_overtaken_by_compaction_raises_and_never_answers_in_part() -> None:
    driver = full([(b"k%02d" % n, b"") for n in range(30)])
    revision = driver.store.revision
    for command in (Put(b"k05", b"new"), DeleteRange(b"k20")):
        driver.do(command)
    sums, feed = driver.store.feed.sums_at(revision), driver.store.feed
    _, until = feed.rows(revision, ALL, 0, b"", None)
    driver.do(Compact(revision + 1))
    with pytest.raises(Compacted):
        sums.step()
    with pytest.raises(Compacted):
        feed.rows(revision, ALL, 0, until or b"", None)


def test_feed_slice_of_a_past_revision_is_bounded_for_frequently_written_keys(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 keys, written 100 times each since, took 0.8 s in one turn of the loop, in which no heartbeat left (R5)."""
    keys = [b"%02d" % number for number in range(40)]
    driver.all(*(Put(key, b"first") for key in keys))
    revision = driver.store.revision
    for _ in range(90):
        driver.all(*(Put(key, bytes(300)) for key in keys))
    monkeypatch.setattr(feed_module, "ROWS_PER_SLICE", 2000)
    feed, history = driver.store.feed, driver.store._history
    rows: list[bytes] = []
    marks = b""
    spans = b""
    for take in ("rows", "fingerprints", "spans"):
        start: bytes | None = b""
        while start is not None:
            before = history.blocks_read
            if take == "rows":
                found, start = feed.rows(revision, bytes([1]) * BUCKETS, 0, start, None)
                rows += found
            elif take == "spans":
                more, start = feed.spans(revision, start)
                spans += more
            else:
                more, start = feed.fingerprints(revision, bytes([1]) * BUCKETS, start, None)
                marks += more
            assert history.blocks_read - before < feed_module.BLOCKS_PER_SLICE + 70
    assert [key_of(row) for row in rows] == keys
    assert marks == b"".join(map(fingerprint_of, keys))
    assert sum(span.keys for span in unpack_spans(spans)) == len(keys)
