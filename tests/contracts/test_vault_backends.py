"""The contract of a vault's backend (vault/tables.py), on disk and in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from palisade.vault.lmdb_tables import LmdbBackend
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.tables import VaultTable

BACKENDS = ("memory", "lmdb")


@pytest.fixture(params=BACKENDS)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    memory = MemoryBackend()
    opened: list[Any] = []

    def open_again() -> Any:
        if opened:
            opened.pop().close()
        opened.append(memory if request.param == "memory" else LmdbBackend(tmp_path / "vault", map_bytes=1 << 18))
        return opened[0]

    yield open_again
    for backend in opened:
        backend.close()


def content(backend: Any, table: VaultTable) -> list[tuple[bytes, bytes]]:
    return list(backend.scan(table, b"", None))


def test_commit_changes_all_tables_together(reopen: Callable[[], Any]) -> None:
    backend = reopen()
    backend.commit({VaultTable.ENTRY: {b"b": b"2", b"a": b""}, VaultTable.META: {b"m": b"x"}})
    assert content(backend, VaultTable.ENTRY) == [(b"a", b""), (b"b", b"2")]
    backend.commit({VaultTable.ENTRY: {b"a": None, b"never": None, b"c": b"3"}, VaultTable.META: {b"m": b"y"}})
    backend = reopen()
    assert content(backend, VaultTable.ENTRY) == [(b"b", b"2"), (b"c", b"3")]
    assert (backend.get(VaultTable.META, b"m"), backend.get(VaultTable.META, b"n")) == (b"y", None)
    assert backend.get_many(VaultTable.ENTRY, [b"c", b"x", b"b"]) == {b"b": b"2", b"c": b"3"}
    assert backend.get_many(VaultTable.ENTRY, []) == {}


def test_clearing_precedes_the_changes_of_the_same_commit(reopen: Callable[[], Any]) -> None:
    backend = reopen()
    backend.commit({VaultTable.DIFFERENCE: {b"a": b"1"}, VaultTable.ENTRY: {b"a": b"1"}})
    backend.commit({VaultTable.DIFFERENCE: {b"b": b"2"}}, cleared=(VaultTable.DIFFERENCE,))
    assert content(backend, VaultTable.DIFFERENCE) == [(b"b", b"2")]
    assert content(backend, VaultTable.ENTRY) == [(b"a", b"1")]


def test_scan_sees_one_moment(reopen: Callable[[], Any]) -> None:
    backend = reopen()
    backend.commit({VaultTable.ENTRY: {bytes([byte]): b"old" for byte in range(10)}})
    rows = backend.scan(VaultTable.ENTRY, bytes([2]), bytes([8]))
    first = next(rows)
    backend.commit({VaultTable.ENTRY: {bytes([byte]): b"new" for byte in range(10)}})
    assert [first, *rows] == [(bytes([byte]), b"old") for byte in range(2, 8)]


def test_backend_grows_beyond_its_initial_size(reopen: Callable[[], Any]) -> None:
    """The one on disk begins with a map of 256 KiB."""
    backend, value = reopen(), bytes(10_000)
    for number in range(100):
        backend.commit({VaultTable.ENTRY: {number.to_bytes(4, "big"): value}})
    assert sum(len(row) for _, row in content(reopen(), VaultTable.ENTRY)) == 1_000_000


def test_backend_behaves_like_a_dict(reopen: Callable[[], Any]) -> None:
    rng, model = random.Random(3), dict[bytes, bytes]()
    backend = reopen()
    for step in range(200):
        rows = {b"%03d" % rng.randrange(80): rng.choice((None, b"%d" % step)) for _ in range(rng.randrange(6))}
        backend.commit({VaultTable.ENTRY: rows})
        for key, value in rows.items():
            model.pop(key, None)
            model |= {} if value is None else {key: value}
        if step % 20 == 0:
            backend = reopen()
        start, end = sorted((b"%03d" % rng.randrange(80), b"%03d" % rng.randrange(80)))
        expected = [(key, model[key]) for key in sorted(model) if start <= key < end]
        assert list(backend.scan(VaultTable.ENTRY, start, end)) == expected
        size = rng.randrange(1, 9)
        pages = list(backend.key_pages(VaultTable.ENTRY, start, end, size))
        assert [key for page in pages for key in page] == [key for key, _ in expected]
        assert all(0 < len(page) <= size for page in pages)
    assert content(backend, VaultTable.ENTRY) == sorted(model.items())
    assert [*backend.key_pages(VaultTable.ENTRY, b"", None, 1_000)] == [sorted(model)]
