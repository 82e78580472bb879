"""The fence page as seen by other processes, and every case in which it is not trusted (issue 4, F1, N6)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from palisade.vault import lmdb_tables as lmdb_backend
from palisade.vault.errors import VaultForeign, VaultNewer, VaultUnusable
from palisade.vault.fence_file import FENCE_FILE, FenceFile, boot_mark, clock_ns, map_fence
from palisade.vault.fence_page import (
    COPY_BYTES,
    FENCE_BYTES,
    FIELDS,
    SEQUENCE_WORD,
    SUM,
    Fence,
    FencePage,
    FenceState,
    TornPage,
    crc32,
    pack_fence,
    unpack_fence,
)
from palisade.vault.lmdb_tables import LmdbBackend
from palisade.vault.opening import open_vault
from tests.support.vault_feed import follow, full

BOOT = b"thisboot"
ACTIVE = Fence(FenceState.ACTIVE, 1000, 3, 41, 40, 7, 2, 5, BOOT, 9)


def page_over(buffer: bytearray) -> FencePage:
    return FencePage(buffer, BOOT)


def said(buffer: bytearray) -> Fence:
    return unpack_fence(bytes(buffer[:COPY_BYTES]))


def test_fence_page_round_trips() -> None:
    assert unpack_fence(pack_fence(ACTIVE)) == ACTIVE
    assert COPY_BYTES <= FENCE_BYTES


def test_fence_page_begins_fenced() -> None:
    buffer = bytearray(pack_fence(ACTIVE).ljust(FENCE_BYTES, b"\xff"))
    page_over(buffer)
    assert said(buffer).state is FenceState.FENCED
    assert not said(buffer).serves(0, BOOT)


def test_fence_serves_while_active_until_its_deadline() -> None:
    assert ACTIVE.serves(999, BOOT)
    for now, boot in ((1000, BOOT), (2000, BOOT), (0, b"another.")):
        assert not ACTIVE.serves(now, boot)
        assert ACTIVE.refusal(now, boot)
    buffer = bytearray(FENCE_BYTES)
    page = page_over(buffer)
    for state in (FenceState.FENCED, FenceState.RECOVERING):
        page.serve(1000, 1)
        page.refuse(state)
        assert said(buffer).state is state
        assert not said(buffer).serves(0, BOOT)
        assert state.name.lower() in said(buffer).refusal(0, BOOT)
    with pytest.raises(ValueError, match="only serve"):
        page.refuse(FenceState.ACTIVE)


def test_fence_page_sequence_grows_with_every_write(tmp_path: Path) -> None:
    """Readers rely on it to detect changes, also over a restart."""
    buffer = bytearray(FENCE_BYTES)
    page, seen = page_over(buffer), []
    words = memoryview(buffer).cast("Q")
    for step in (
        page.refuse,
        lambda: page.serve(1000, 1),
        lambda: page.serve(1000, 1),
        lambda: page.committed(1, 0),
    ) * 2:
        step()
        seen.append(said(buffer).sequence)
        assert words[SEQUENCE_WORD] == seen[-1]
    assert seen == sorted(set(seen))
    before = FenceFile(tmp_path).page.fence.sequence
    assert FenceFile(tmp_path).page.fence.sequence > before


def test_deadline_and_released_revision_never_decrease() -> None:
    buffer = bytearray(FENCE_BYTES)
    page = page_over(buffer)
    page.serve(2000, 1)
    page.serve(1000, 1)
    page.release(9)
    page.release(8)
    assert (said(buffer).deadline_ns, said(buffer).released) == (2000, 9)


def test_vault_between_two_revisions_cannot_become_active() -> None:
    buffer = bytearray(FENCE_BYTES)
    page = page_over(buffer)
    page.serve(1000, 1)
    page.committed(5, 0, whole=False)
    assert said(buffer).state is FenceState.FENCED
    with pytest.raises(RuntimeError, match="until its snapshot is finished"):
        page.serve(1000, 1)
    page.committed(6, 1)
    page.serve(1000, 1)
    assert (said(buffer).lv, said(buffer).pending, said(buffer).commits) == (6, 1, 2)


def test_mixture_of_two_pages_is_always_detected() -> None:
    """A copy taken during a write: some bytes of the old page, some of the new one."""
    rng, torn = random.Random(5), 0
    for _ in range(2000):
        one = pack_fence(ACTIVE)
        other = pack_fence(Fence(FenceState.FENCED, rng.randrange(1 << 60), 3, 42, 41, 8, 1, 5, BOOT, 10))
        cut = rng.randrange(COPY_BYTES)
        mixed = one[:cut] + other[cut:]
        if mixed in (one, other):
            continue
        torn += 1
        with pytest.raises(TornPage):
            unpack_fence(mixed)
    assert torn > 1000


def test_garbage_short_foreign_and_newer_pages_are_refused() -> None:
    for garbage in (b"", b"PLSD", bytes(COPY_BYTES), b"not a page" * 20):
        with pytest.raises(VaultForeign, match="not a fence page"):
            unpack_fence(garbage)
    newer = bytearray(pack_fence(ACTIVE)[: FIELDS.size])
    newer[8] = 2
    with pytest.raises(VaultNewer, match="version 2"):
        unpack_fence(bytes(newer) + SUM.pack(crc32(newer)))


def test_reader_mappings_stay_valid_over_a_restart(tmp_path: Path) -> None:
    first = FenceFile(tmp_path)
    first.page.serve(clock_ns() + 10**12, 1)
    mapped, which = map_fence(tmp_path)
    assert unpack_fence(mapped[:COPY_BYTES]).serves(clock_ns(), boot_mark())
    before = unpack_fence(mapped[:COPY_BYTES]).sequence
    second = FenceFile(tmp_path)
    assert unpack_fence(mapped[:COPY_BYTES]).state is FenceState.FENCED
    second.page.serve(clock_ns() + 10**12, 2)
    now = unpack_fence(mapped[:COPY_BYTES])
    assert (now.state, now.term, map_fence(tmp_path)[1]) == (FenceState.ACTIVE, 2, which)
    assert now.sequence > before
    second.close()
    second.close()
    assert unpack_fence(mapped[:COPY_BYTES]).state is FenceState.FENCED


def test_page_of_another_boot_is_not_trusted(tmp_path: Path) -> None:
    FenceFile(tmp_path, "first").page.serve(clock_ns() + 10**12, 1)
    fence = unpack_fence(map_fence(tmp_path)[0][:COPY_BYTES])
    assert fence.serves(clock_ns(), boot_mark("first"))
    assert not fence.serves(clock_ns(), boot_mark("second"))
    assert "since the machine did" in fence.refusal(clock_ns(), boot_mark("second"))
    assert boot_mark("") != boot_mark("second")


def test_file_that_is_no_page_is_refused_by_readers_and_replaced_by_the_node(tmp_path: Path) -> None:
    with pytest.raises(VaultUnusable, match="start its node"):
        map_fence(tmp_path)
    for garbage in (b"", b"short", b"g" * FENCE_BYTES, b"g" * 5000, pack_fence(ACTIVE)):
        (tmp_path / FENCE_FILE).write_bytes(garbage)
        with pytest.raises(VaultForeign, match="fence page"):
            map_fence(tmp_path)
        FenceFile(tmp_path).close()
        assert unpack_fence(map_fence(tmp_path)[0][:COPY_BYTES]).state is FenceState.FENCED
    assert sorted(path.name for path in tmp_path.iterdir()) == [FENCE_FILE]


def test_torn_page_is_repaired_in_place(tmp_path: Path) -> None:
    FenceFile(tmp_path)
    mapped, which = map_fence(tmp_path)
    with (tmp_path / FENCE_FILE).open("r+b") as stream:
        stream.seek(20)
        stream.write(b"torn")
    assert map_fence(tmp_path)[1] == which
    with pytest.raises(TornPage):
        unpack_fence(mapped[:COPY_BYTES])
    FenceFile(tmp_path)
    assert unpack_fence(mapped[:COPY_BYTES]).state is FenceState.FENCED


def test_starting_node_is_fenced_before_it_opens_the_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """design.md "Fence page": a starting node writes FENCED before it opens the vault for writing."""
    vault = open_vault(tmp_path)
    follow(vault, full([(b"a", b"1")]))
    assert vault.page is not None
    vault.page.serve(clock_ns() + 10**12, 1)
    left = (tmp_path / FENCE_FILE).read_bytes()
    vault.close()
    (tmp_path / FENCE_FILE).write_bytes(left)
    seen: list[FenceState] = []
    original = LmdbBackend._open

    def watched(self: LmdbBackend, map_bytes: int) -> object:
        seen.append(unpack_fence(map_fence(tmp_path)[0][:COPY_BYTES]).state)
        return original(self, map_bytes)

    monkeypatch.setattr(lmdb_backend.LmdbBackend, "_open", watched)
    with pytest.raises(VaultForeign, match="no vault"):
        LmdbBackend(tmp_path / "nothing", read_only=True)
    assert unpack_fence(map_fence(tmp_path)[0][:COPY_BYTES]).state is FenceState.ACTIVE
    vault = open_vault(tmp_path)
    assert seen == [FenceState.FENCED]
    vault.close()


def test_fence_page_of_a_vault_in_use_is_not_changed(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    assert vault.page is not None
    vault.page.serve(clock_ns() + 10**12, 1)
    with pytest.raises(VaultUnusable, match="in use"):
        open_vault(tmp_path)
    assert unpack_fence(map_fence(tmp_path)[0][:COPY_BYTES]).state is FenceState.ACTIVE
    vault.close()
    assert unpack_fence(map_fence(tmp_path)[0][:COPY_BYTES]).state is FenceState.FENCED
