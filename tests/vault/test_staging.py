"""Staged changes in the vault: marked, released, removed by the commit that moves LV past them (issue 4, F3, F5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import msgpack
import pytest

from palisade.base.digest import unpack_sums
from palisade.metastore.requests import DeleteRange, Put
from palisade.vault.change import item_of
from palisade.vault.errors import VaultDamaged, VaultDiverged, VaultError, VaultUngated
from palisade.vault.fence_page import FENCE_BYTES, FencePage, FenceState
from palisade.vault.incoming_difference import Incoming
from palisade.vault.inspection import export_rows, summary_of
from palisade.vault.lmdb_tables import LmdbBackend
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.opening import open_vault, read_vault
from palisade.vault.position import VaultPosition
from palisade.vault.record_check import CHECKSUMS
from palisade.vault.regions import Mode, Policy, Region, pack_region, region_key
from palisade.vault.staging import PendingKeys, StagedChange, check_pending, pack_all
from palisade.vault.tables import Backend, VaultTable
from palisade.vault.vault import Vault
from palisade.vault.verification import verify, verify_at_rest
from tests.support.meta_driver import Driver
from tests.support.vault_feed import follow, full, items_of, revision_at

LONG = b"/long/" + b"x" * 600


def staged(driver: Driver, number: int) -> list[StagedChange]:
    """The staged rows of a revision."""
    found = []
    for body in revision_at(driver, number).bodies:
        item = item_of(body)
        found.append(StagedChange(number, item.key, body if item.version else None))
    return found


@pytest.fixture(params=("memory", "lmdb"))
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Vault]]:
    """A vault with a page, and the same one after each restart of its process."""
    memory = MemoryBackend()
    opened: list[Vault] = []

    def open_again() -> Vault:
        if opened:
            opened.pop().close()
        backend: Backend = memory if request.param == "memory" else LmdbBackend(tmp_path / "v", map_bytes=1 << 20)
        opened.append(Vault(backend, FencePage(bytearray(FENCE_BYTES), b"thisboot")))
        return opened[0]

    yield open_again
    for vault in opened:
        vault.close()


def rows_of(vault: Vault) -> dict[bytes, bytes]:
    return dict(vault.backend.scan(VaultTable.PENDING, b"", None))


def published(vault: Vault) -> tuple[int, int, int]:
    assert vault.page is not None
    fence = vault.page.fence
    return fence.lv, fence.pending, fence.released


def test_staged_change_does_not_change_the_state(reopen: Callable[[], Vault]) -> None:
    driver = full([(b"a", b"1"), (b"a", b"2"), (LONG, b"3")])
    vault = reopen()
    follow(vault, driver, 2)
    vault.staging.release(2)
    vault.staging.stage([*staged(driver, 3), *staged(driver, 4)])
    assert [item.value for item in vault.range(b"")] == [b"1"]
    assert published(vault) == (2, 2, 2)
    assert [vault.staging.pending.revision_of(key) for key in (b"a", LONG, b"b")] == [3, 4, None]
    assert (vault.staging.pending.latest, vault.staging.pending.first_after(3)) == (4, 4)
    assert vault.packed_sums() == Vault(vault.backend).packed_sums()
    vault = reopen()
    assert (published(vault), len(vault.staging.pending)) == ((2, 2, 0), 2)
    assert list(verify(vault)) == [1]
    assert (summary_of(vault).pending, [row["value"] for row in export_rows(vault)]) == (2, ["1"])


def test_pending_rows_are_removed_when_lv_passes_them_and_they_are_released(reopen: Callable[[], Vault]) -> None:
    driver = full([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    vault = reopen()
    vault.staging.stage([*staged(driver, 2), *staged(driver, 3), *staged(driver, 4)])
    assert len(rows_of(vault)) == 2
    vault.staging.release(3)
    assert len(rows_of(vault)) == 2
    follow(vault, driver, 2)
    assert len(rows_of(vault)) == 2, "the later change of a is neither applied nor released"
    follow(vault, driver, 3)
    assert list(rows_of(vault)) == [b"a"]
    follow(vault, driver, 4)
    assert list(rows_of(vault)) == [b"a"], "applied while nothing is served, and not released"
    vault.staging.release(4)
    driver.do(Put(b"c", b"1"))
    follow(vault, driver)
    assert (rows_of(vault), published(vault)) == ({}, (5, 0, 4))


def test_pending_row_has_the_latest_change_despite_duplicates_and_delays(reopen: Callable[[], Vault]) -> None:
    driver = full([(b"a", b"1"), (b"a", b"2")])
    driver.do(DeleteRange(b"a"))
    vault = reopen()
    one, two, gone = (staged(driver, number) for number in (2, 3, 4))
    assert gone == [StagedChange(4, b"a", None)]
    vault.staging.stage([*two, *one])
    assert rows_of(vault) == pack_all({b"a": two[0]})
    commits = vault.backend.commits if isinstance(vault.backend, MemoryBackend) else 0
    vault.staging.stage(one)
    vault.staging.stage(two)
    assert rows_of(vault) == pack_all({b"a": two[0]})
    if isinstance(vault.backend, MemoryBackend):
        assert vault.backend.commits == commits
    vault.staging.stage(gone)
    assert rows_of(vault) == {b"a": (4).to_bytes(8, "big")}
    vault.staging.stage([])
    assert vault.staging.pending.revision_of(b"a") == 4


def test_stage_anew_replaces_all_pending_rows(reopen: Callable[[], Vault]) -> None:
    """For a holder that stopped serving: its leader sends what is pending now."""
    driver = full([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    vault = reopen()
    vault.staging.stage([*staged(driver, 2), *staged(driver, 3)])
    vault.staging.stage(staged(driver, 4), anew=True)
    assert (list(rows_of(vault)), len(vault.staging.pending), vault.staging.pending.latest) == ([b"c"], 1, 4)
    vault.staging.stage([], anew=True)
    assert (rows_of(vault), published(vault)) == ({}, (0, 0, 0))


def test_malformed_staged_rows_change_nothing(reopen: Callable[[], Vault]) -> None:
    driver = full([(b"a", b"1")])
    row = staged(driver, 2)[0]
    vault = reopen()
    for wrong in (
        row._replace(revision=3),
        row._replace(key=b"b"),
        row._replace(body=b"short"),
        row._replace(revision=0, body=None),
        row._replace(key=b"", body=None),
    ):
        with pytest.raises(VaultDiverged, match="is malformed: request it again"):
            vault.staging.stage([row, wrong])
    assert (rows_of(vault), len(vault.staging.pending)) == ({}, 0)


def test_served_vault_never_passes_an_unreleased_change(reopen: Callable[[], Vault]) -> None:
    """The node implements the gate; here it is checked (design.md "Released revision")."""
    driver = full([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    vault = reopen()
    assert vault.page is not None
    follow(vault, driver, 2)
    vault.staging.release(2)
    vault.staging.stage(staged(driver, 4))
    vault.page.serve(1000, 1)
    follow(vault, driver, 3)
    with pytest.raises(VaultUngated, match="move it to 3, or wait for the release"):
        follow(vault, driver)

    async def leap() -> None:
        digest = driver.store.digest()
        position = VaultPosition(digest.revision, digest.chain, driver.store.key_count)
        await vault.leap(lambda: iter(()), position, unpack_sums(digest.buckets), pause)

    with pytest.raises(VaultUngated):
        asyncio.run(leap())
    assert (vault.revision, vault.staging.leaping, len(rows_of(vault))) == (3, False, 1)
    vault.staging.release(4)
    follow(vault, driver)
    assert (vault.revision, rows_of(vault)) == (4, {})


def test_changes_applied_before_serving_do_not_prevent_it(reopen: Callable[[], Vault]) -> None:
    """A returning holder may be ahead of RR: the marks then belong to entries that are already applied."""
    driver = full([(b"a", b"1"), (b"b", b"1")])
    vault = reopen()
    assert vault.page is not None
    follow(vault, driver)
    vault.staging.release(2)
    vault.staging.stage(staged(driver, 3), anew=True)
    vault.page.serve(1000, 1)
    driver.do(Put(b"c", b"1"))
    follow(vault, driver)
    assert list(rows_of(vault)) == [b"b"]


async def pause() -> None:
    await asyncio.sleep(0)


async def test_stage_is_refused_during_a_leap_and_after_leap_is_called(
    reopen: Callable[[], Vault],
) -> None:
    driver = full([(b"a", b"1"), (b"a", b"2")])
    vault = reopen()
    follow(vault, driver, 2)
    vault.staging.release(3)
    vault.staging.stage(staged(driver, 3))
    rows = {b"a": revision_at(driver, 3).bodies[0]}
    digest = driver.store.digest()
    notified: list[int] = []
    vault.staging.after_leap(lambda: notified.append(-1))

    async def in_the_middle() -> None:
        with pytest.raises(RuntimeError, match="stage after it"):
            vault.staging.stage(staged(driver, 3))
        vault.staging.after_leap(lambda: notified.append(len(rows_of(vault))))
        assert published(vault) == (2, 1, 3)

    position = VaultPosition(3, digest.chain, driver.store.key_count)
    await vault.leap(lambda: iter([rows]), position, unpack_sums(digest.buckets), in_the_middle)
    assert notified == [-1, 0, 0]
    assert published(vault) == (3, 0, 3)
    assert items_of(vault)[0][1] == b"2"


def test_vault_with_an_unfinished_snapshot_is_never_served(reopen: Callable[[], Vault]) -> None:
    driver = full([(b"a", b"1"), (b"b", b"1")])
    vault = reopen()
    assert vault.page is not None
    vault.page.serve(1000, 1)
    vault.staging.stage(staged(driver, 2))
    incoming = Incoming(vault, 3, notify=False)
    assert vault.page.fence.state is FenceState.FENCED
    with pytest.raises(RuntimeError):
        vault.page.serve(1000, 1)
    incoming.put([body for number in (2, 3) for body in revision_at(driver, number).bodies], b"", None)
    with pytest.raises(RuntimeError):
        vault.page.serve(1000, 1)
    vault.staging.release(3)
    incoming.finish(driver.store.digest().chain, unpack_sums(driver.store.digest().buckets))
    assert (rows_of(vault), published(vault)) == ({}, (3, 0, 3))
    vault.page.serve(1000, 1)


def test_regions_are_those_of_lv_and_strictness_is_earlier(reopen: Callable[[], Vault]) -> None:
    """From the moment when a region change is staged, the prefix is strict if the old or the new region is."""
    driver = full([(b"x", b"1")])
    for mode in (Mode.STRICT, Mode.EVENTUAL):
        driver.do(Put(region_key("a"), pack_region(Region("a", b"/a/", mode, Policy.REFETCH))))
    driver.do(DeleteRange(region_key("a")))
    vault = reopen()
    follow(vault, driver, 2)
    staging = vault.staging
    assert not staging.regions.is_strict(b"/a/x")
    assert not staging.effective_regions.is_strict(b"/a/x")
    staging.stage(staged(driver, 3))
    assert (staging.regions.is_strict(b"/a/x"), staging.effective_regions.is_strict(b"/a/x")) == (False, True)
    staging.stage([*staged(driver, 4), *staged(driver, 5)])
    assert staging.effective_regions.is_strict(b"/a/x"), "between two staged changes it was strict"
    staging.release(4)
    follow(vault, driver, 3)
    assert staging.regions.is_strict(b"/a/x")
    staging.release(5)
    follow(vault, driver, 5)
    assert not staging.regions.is_strict(b"/a/x")
    assert not staging.effective_regions.is_strict(b"/a/x")


def test_older_format_is_extended_when_opened(tmp_path: Path) -> None:
    path = old_vault(tmp_path / "v")
    looked_at = read_vault(path)
    assert (looked_at.revision, summary_of(looked_at).pending) == (3, 0)
    assert (
        looked_at.backend.get_many(VaultTable.PENDING, [b"a"]),
        list(looked_at.backend.key_pages(VaultTable.PENDING, b"", None, 9)),
    ) == ({}, [])
    looked_at.close()
    assert verify_at_rest(path) == 2
    assert format_of(path) == [b"palisade-vault", 1]
    driver = full([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    vault = open_vault(path)
    vault.staging.stage(staged(driver, 4))
    vault.close()
    assert format_of(path) == [b"palisade-vault", 3]
    vault = open_vault(path)
    assert (vault.revision, len(vault.staging.pending)) == (3, 1)
    vault.close()
    assert verify_at_rest(path) == 2


def test_extending_a_suspect_vault_keeps_it_suspect(tmp_path: Path) -> None:
    path = old_vault(tmp_path / "v")
    (path / "unsynced").write_text("another boot")
    backend = LmdbBackend(path)
    backend.abandon()
    assert backend.directory.suspect
    vault = open_vault(path)
    assert items_of(vault) != []
    vault.close()


def old_vault(path: Path) -> Path:
    """As the previous version wrote it: without PENDING."""
    vault = open_vault(path)
    follow(vault, full([(b"a", b"1"), (b"b", b"2")]))
    vault.close()
    with lmdb.open(str(path), max_dbs=32) as env:
        pending, about = env.open_db(b"PENDING"), env.open_db(b"ABOUT")
        with env.begin(write=True) as txn:
            txn.drop(pending)
            said = CHECKSUMS.seal_all(VaultTable.META, [(b"format", msgpack.packb(["palisade-vault", 1, "ab"]))])[0][1]
            txn.put(b"format", said, db=about)
    return path


def format_of(path: Path) -> list[object]:
    with lmdb.open(str(path), max_dbs=32, readonly=True) as env, env.begin(db=env.open_db(b"ABOUT")) as txn:
        name, version, _ = msgpack.unpackb(txn.get(b"format")[:-8])
        return [name.encode(), version]


def test_damaged_pending_row_is_detected() -> None:
    driver = full([(b"a", b"1")])
    good = pack_all({b"": staged(driver, 2)[0]})[b""]
    check_pending(b"a", good)
    check_pending(b"a", (7).to_bytes(8, "big"))
    for stored, packed in (
        (b"b", good),
        (b"a", good[:-1]),
        (b"a", b"\0" * 8),
        (b"a", b"x"),
        (b"a", (9).to_bytes(8, "big") + good[8:]),
    ):
        with pytest.raises(VaultDamaged, match="pending row"):
            check_pending(stored, packed)
    vault = Vault(MemoryBackend())
    vault.backend.commit({VaultTable.PENDING: {b"b": good}})
    with pytest.raises(VaultError):
        list(verify(vault))


def test_pending_keys_are_ordered_by_revision() -> None:
    pending = PendingKeys([(b"c", 5), (b"a", 3)])
    assert (pending.upto(4), pending.latest, pending.first_after(0)) == ([b"a"], 5, 3)
    pending.add(pending.newer([StagedChange(4, b"b", None), StagedChange(2, b"c", None), StagedChange(9, b"a", None)]))
    assert (pending.upto(5), pending.latest, pending.first_after(5)) == ([b"b", b"c"], 9, 9)
    pending.remove([b"b", b"never"])
    assert (len(pending), pending.first_after(9)) == (2, None)
