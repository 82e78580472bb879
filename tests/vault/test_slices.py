"""Slices of a vault: each from its own snapshot, and together the range."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from palisade.base import checksums
from palisade.base.long_keys import stored_key
from palisade.vault import slices
from palisade.vault.change import item_of
from palisade.vault.errors import VaultDamaged
from palisade.vault.fence_page import FENCE_BYTES, FencePage
from palisade.vault.lmdb_tables import LmdbBackend
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.opening import open_vault
from palisade.vault.read_policies import Unreachable
from palisade.vault.reader import VaultReader
from palisade.vault.slices import VaultSlice, samples_of, slice_of
from palisade.vault.tables import VaultTable
from palisade.vault.vault import Vault
from tests.support.slice_rows import bodies_of
from tests.support.vault_feed import follow, full, state_of, write_some

BOUNDS = [(b"\0", None), (b"/k/0050", b"/k/0150"), (b"/k/0050", b"/long/" + b"x" * 484), (b"/long/" + b"x" * 482, None)]


@pytest.fixture(params=("memory", "lmdb"))
def vault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Vault]:
    if request.param == "memory":
        found = Vault(MemoryBackend(), FencePage(bytearray(FENCE_BYTES), b"thisboot"))
    else:
        found = open_vault(tmp_path / "vault", map_bytes=1 << 24)
    yield found
    found.close()


def sliced(reader: VaultReader, start: bytes, end: bytes | None, bytes_max: int) -> VaultSlice:
    found = reader.trusted(lambda snapshot: slice_of(snapshot, start, end, bytes_max))
    assert isinstance(found, VaultSlice)
    return found


@pytest.mark.parametrize("bytes_max", [1, 700, 1 << 20])
@pytest.mark.parametrize(("start", "end"), BOUNDS)
def test_slices_together_are_the_range_with_long_keys_in_order(
    vault: Vault, start: bytes, end: bytes | None, bytes_max: int
) -> None:
    driver = full([])
    write_some(driver, random.Random(1), 600)
    follow(vault, driver)
    assert vault.page is not None
    vault.page.serve(10**12, 1)
    reader = VaultReader.over(vault, clock_ns=lambda: 0)
    found, at = list[tuple[object, ...]](), start
    while True:
        part = sliced(reader, at, end, bytes_max)
        assert part.revision == driver.store.revision
        found += [tuple(item_of(body)) for body in bodies_of(part.page, part.sizes)]
        if part.until is None:
            break
        assert part.until > at
        at = part.until
    assert found == [row for row in state_of(driver) if row[0] >= start and (end is None or row[0] < end)]  # type: ignore[operator]


@pytest.mark.parametrize(("start", "end"), BOUNDS[:2])
def test_samples_are_keys_that_lie_a_stride_apart(
    vault: Vault, start: bytes, end: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slice by slice."""
    monkeypatch.setattr(slices, "STRIDE", 5)
    monkeypatch.setattr(slices, "SAMPLES_PER_SLICE", 3)
    driver = full([])
    write_some(driver, random.Random(1), 600)
    follow(vault, driver)
    assert vault.page is not None
    vault.page.serve(10**12, 1)
    reader = VaultReader.over(vault, clock_ns=lambda: 0)
    found, sizes, at = list[bytes](), list[int](), start
    while at is not None:
        taken = reader.trusted(partial(samples_of, start=at, end=end))
        assert isinstance(taken, tuple)
        found += taken[0]
        sizes.append(len(taken[0]))
        at = taken[1]
    keys = [stored_key(item.key) for item in vault.range(start, end)]
    assert found == sorted(keys)[::5]
    assert set(sizes[:-1]) == {3}
    assert len(sizes) > 2


def test_slice_is_refused_after_the_lease(vault: Vault) -> None:
    driver = full([(b"a", b"1"), (b"b", b"2")])
    follow(vault, driver)
    assert vault.page is not None
    vault.page.serve(1_000, 1)
    now = [0]
    reader = VaultReader.over(vault, clock_ns=lambda: now[0])
    assert len(sliced(reader, b"a", None, 1).sizes) == 2
    now[0] = 1_001
    refused = reader.trusted(lambda snapshot: slice_of(snapshot, b"a", None))
    assert isinstance(refused, Unreachable)
    assert "lease expired" in refused.reason


@pytest.mark.parametrize(
    "damage",
    [
        lambda row, _: row[:-9] + bytes([row[-9] ^ 1]) + row[-8:],
        lambda row, _: row[:-1] + bytes([row[-1] ^ 1]),
        lambda row, _: row[:5],
        lambda row, _: row + b"\0",
        lambda _, other: other,
        lambda row, other: row[:-8] + other[-8:],
    ],
    ids=["value", "checksum", "truncated", "longer", "of-another-key", "checksum-of-another-key"],
)
@pytest.mark.parametrize("at_once_bytes", [checksums.AT_ONCE_BYTES, 0])
def test_slice_with_a_damaged_row_is_refused(
    tmp_path: Path, damage: Callable[[bytes, bytes], bytes], monkeypatch: pytest.MonkeyPatch, at_once_bytes: int
) -> None:
    """The row of a key in the middle, with the length that other rows have or not; verified together or one by one."""
    monkeypatch.setattr(checksums, "AT_ONCE_BYTES", at_once_bytes)
    driver = full([(b"%03d" % number, b"value") for number in range(600)])
    vault = open_vault(tmp_path / "vault", map_bytes=1 << 24)
    with closing(vault):
        follow(vault, driver)
        assert isinstance(vault.backend, LmdbBackend)
        assert vault.page is not None
        vault.page.serve(10**12, 1)
        with vault.backend.env.begin(write=True, db=vault.backend.tables[VaultTable.ENTRY]) as txn:
            txn.put(b"555", damage(txn.get(b"555"), txn.get(b"556")))
        reader = VaultReader.over(vault, clock_ns=lambda: 0)
        assert len(sliced(reader, b"000", b"500", 1 << 20).sizes) == 500
        with pytest.raises(VaultDamaged, match="value of b'555' in table ENTRY is damaged"):
            sliced(reader, b"000", None, 1 << 20)
