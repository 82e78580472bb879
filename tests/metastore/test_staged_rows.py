"""A staged chunk is copied once, in one revision, while its batch is open; later changes of its keys win (issue 18)."""

from __future__ import annotations

from random import Random
from typing import Any

import msgpack
import pytest

from palisade.metastore.compaction import Compactor
from palisade.metastore.digest import StoreDigest
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.history import is_tombstone, mod_of
from palisade.metastore.limits import Limits
from palisade.metastore.requests import Command, Compact, CopyChunk, DeleteRange, Put
from palisade.metastore.staged_rows import StagedRows, pack_chunk, rows_of_chunk
from tests.support.meta_driver import Driver

Model = dict[bytes, bytes]


def staged(driver: Driver, *rows: tuple[bytes, bytes | None], chunk: bytes = b"s/1") -> CopyChunk:
    """A chunk, and the command that copies it; the batch is opened now."""
    driver.do(Put(chunk, pack_chunk(rows)))
    return CopyChunk(b"m", driver.do(Put(b"m", b"open")).revision, chunk, b"p/", b"p0")


def test_chunk_is_copied_in_one_revision_and_deleted(driver: Driver) -> None:
    driver.do(Put(b"p/old", b"1"))
    driver.do(Put(b"p/gone", b"1"))
    copy = staged(driver, (b"p/old", b"2"), (b"p/gone", None), (b"p/new", b"3"), (b"p/absent", None))
    done = driver.do(copy)
    assert (done.revision, done.count) == (copy.opened + 1, 3)
    assert driver.value(b"p/old") == b"2"
    assert driver.value(b"p/gone") is None
    assert driver.value(b"s/1") is None
    assert driver.get(b"p/old").version == 2
    assert {driver.get(key).mod_revision for key in (b"p/old", b"p/new")} == {done.revision}
    assert not driver.findings()


def test_copy_that_is_repeated_does_nothing(driver: Driver) -> None:
    copy = staged(driver, (b"p/a", b"1"))
    driver.do(copy)
    later = driver.do(DeleteRange(b"p/a")).revision
    assert (driver.do(copy).count, driver.store.revision) == (0, later)
    assert driver.value(b"p/a") is None


@pytest.mark.parametrize("end", [DeleteRange(b"m"), None])
def test_batch_that_is_not_open_is_not_copied(driver: Driver, end: Command | None) -> None:
    """Closed, or another batch under the same name."""
    copy = staged(driver, (b"p/a", b"1"))
    driver.do(DeleteRange(b"m"))
    if end is None:
        driver.do(Put(b"m", b"open"))
    assert driver.do(copy).count == 0
    assert driver.value(b"p/a") is None
    assert driver.value(b"s/1") is not None


def test_changes_after_the_opening_win(driver: Driver) -> None:
    """A put, a delete, and a put with a delete of a key that was absent, which leaves nothing to compare."""
    driver.do(Put(b"p/deleted", b"1"))
    copy = staged(driver, *((b"p/" + name, b"batch") for name in (b"put", b"deleted", b"both", b"free")))
    driver.do(Put(b"p/put", b"later"))
    driver.do(DeleteRange(b"p/deleted"))
    driver.do(Put(b"p/both", b"later"))
    driver.do(DeleteRange(b"p/both"))
    assert driver.do(copy).count == 1
    found = [driver.value(b"p/" + name) for name in (b"put", b"deleted", b"both", b"free")]
    assert found == [b"later", None, None, b"batch"]


def copied_after_compaction() -> list[StoreDigest]:
    """Of a replica that has removed the tombstone of the key from its tables, and of one that has not."""
    digests = []
    for collect in (True, False):
        driver = Driver()
        copy = staged(driver, (b"p/both", b"batch"))
        driver.do(Put(b"p/both", b"later"))
        driver.do(DeleteRange(b"p/both"))
        revision = driver.do(Put(b"q", b"")).revision
        with pytest.MonkeyPatch.context() as patch:
            if not collect:
                patch.setattr(Compactor, "collect", lambda self, blocks_max: 0)
            driver.do(Compact(revision))
            driver.do(copy)
        digests.append(driver.store.digest())
    return digests


def test_copy_does_not_depend_on_the_progress_of_compaction() -> None:
    with_tombstone, without = copied_after_compaction()
    assert with_tombstone == without


def test_copy_that_reads_removed_tombstones_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: every tombstone counts that this replica still has."""

    def any_row(self: StagedRows, row: bytes, opened: int) -> bool:
        return bool(row) and mod_of(row) > opened

    monkeypatch.setattr(StagedRows, "_has_changed", any_row)
    with_tombstone, without = copied_after_compaction()
    assert with_tombstone != without


BAD: list[tuple[bytes, str]] = [
    (b"\xc1", "not msgpack"),
    (b"", "not msgpack"),
    (msgpack.packb({}), "not an array"),
    (msgpack.packb([]), "not an array"),
    (msgpack.packb([b"p/a"]), "not an array"),
    (msgpack.packb([b"p/a", b"1", b"p/a", b"2"]), "given twice"),
    (msgpack.packb([7, b"1"]), "not bytes"),
    (msgpack.packb([b"", b"1"]), "empty"),
    (msgpack.packb([b"p/" + b"k" * 5_000, b"1"]), "too large"),
    (msgpack.packb([b"p/a", "text"]), "not bytes"),
    (msgpack.packb([b"p/a", b"v" * 1_048_577]), "too large"),
    (msgpack.packb([b"q/a", b"1"]), "outside"),
    (msgpack.packb([b"o", None]), "outside"),
    (msgpack.packb([part for number in range(1_025) for part in (b"p/%d" % number, b"")]), "1025 rows"),
]


@pytest.mark.parametrize(("chunk", "reason"), BAD)
def test_malformed_chunk_is_refused_and_changes_nothing(chunk: bytes, reason: str) -> None:
    driver = Driver(limits=Limits(value_bytes_max=1 << 20, request_bytes_max=4 << 20))
    driver.do(Put(b"s/1", chunk[: 1 << 20])) if len(chunk) <= 1 << 20 else large(driver, chunk)
    copy = CopyChunk(b"m", driver.do(Put(b"m", b"open")).revision, b"s/1", b"p/", b"p0")
    before = driver.store.digest()
    with pytest.raises(InvalidRequest, match=reason):
        driver.do(copy)
    assert driver.store.digest() == before


def large(driver: Driver, chunk: bytes) -> None:
    """A value that no client may write: the reader of a chunk relies on no other check."""
    writer = driver.store._writer
    writer.put(b"s/1", chunk, 0)
    writer.close()


@pytest.mark.parametrize("own", [b"m", b"s/1"])
def test_chunk_must_not_contain_its_own_keys(driver: Driver, own: bytes) -> None:
    """Both would change twice in one revision, which stops a node."""
    driver.do(Put(b"s/1", pack_chunk([(own, b"1")])))
    opened = driver.do(Put(b"m", b"open")).revision
    with pytest.raises(InvalidRequest, match="outside"):
        driver.do(CopyChunk(b"m", opened, b"s/1", b"\0", b"\0"))


def test_rows_survive_packing() -> None:
    rows = [(b"a", b"1"), (b"b", None), (b"c", b"")]
    assert rows_of_chunk(pack_chunk(rows)) == rows


def run(dice: Random, driver: Driver) -> None:
    """Random batches and plain writes; the oracle applies each batch as a whole when it is opened."""
    keys = [b"p/%d" % number for number in range(6)]
    model: Model = {}
    waiting: list[CopyChunk] = []

    def act(key: bytes, value: bytes | None) -> None:
        if value is not None or driver.value(key) is not None:  # a delete of an absent key changes nothing
            driver.do(DeleteRange(key) if value is None else Put(key, value))
            apply(model, key, value)

    for step in range(60):
        if not waiting and dice.random() < 0.3:
            waiting = opened(dice, driver, model, keys, step)
        elif waiting and dice.random() < 0.5:
            driver.do(dice.choice(waiting))
            waiting = [each for each in waiting if driver.value(each.chunk) is not None]
        else:
            act(dice.choice(keys), None if dice.random() < 0.4 else b"w%d" % step)
    for each in waiting:
        driver.do(each)
    assert {key: value for key in keys if (value := driver.value(key)) is not None} == model


def opened(dice: Random, driver: Driver, model: Model, keys: list[bytes], step: int) -> list[CopyChunk]:
    rows = [(key, None if dice.random() < 0.3 else b"b%d" % step) for key in dice.sample(keys, 4)]
    chunks = [(b"s/%d" % number, rows[2 * number : 2 * number + 2]) for number in range(2)]
    for chunk, part in chunks:
        driver.do(Put(chunk, pack_chunk(part)))
    driver.do(DeleteRange(b"m"))
    revision = driver.do(Put(b"m", b"open")).revision
    for key, value in rows:
        apply(model, key, value)
    return [CopyChunk(b"m", revision, chunk, b"p/", b"p0") for chunk, _ in chunks]


def apply(model: Model, key: bytes, value: bytes | None) -> None:
    model.pop(key, None)
    if value is not None:
        model[key] = value


@pytest.mark.parametrize("seed", range(40))
def test_batch_takes_effect_at_its_opening_whenever_it_is_copied(seed: int) -> None:
    run(Random(seed), Driver())


def never(*_: Any) -> bool:
    return False


def by_live_rows_alone(self: StagedRows, row: bytes, opened: int) -> bool:
    return bool(row) and not is_tombstone(row) and mod_of(row) > opened


@pytest.mark.parametrize("planted", [never, by_live_rows_alone])
def test_copy_without_a_guard_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: later changes are ignored; later deletes are."""
    monkeypatch.setattr(StagedRows, "_has_changed", planted)
    failed = 0
    for seed in range(40):
        try:
            run(Random(seed), Driver())
        except AssertionError:
            failed += 1
    assert failed > 5
