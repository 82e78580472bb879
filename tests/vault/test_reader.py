"""Fenced reads of a vault: results, and the effect of each policy while the node is fenced (issue 4, N6, F7)."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from palisade.metastore.requests import DeleteRange, Put
from palisade.vault.change import Item
from palisade.vault.directory import DATA, VaultDirectory
from palisade.vault.errors import Denied, Fenced, NotReached, Pending, VaultDamaged, VaultForeign, VaultUnusable
from palisade.vault.fence_file import FENCE_FILE, clock_ns
from palisade.vault.fence_page import FENCE_BYTES, FencePage, FenceState
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.opening import open_vault
from palisade.vault.reader import VaultReader
from palisade.vault.regions import INFINITE_TTL, Mode, Policy, Region, pack_region, region_key
from palisade.vault.snapshot_reads import Rows, VaultSnapshot
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.vault_feed import follow, full, staged_of, write_some

LONG = b"/s/" + b"x" * 500
DENY, TTL = b"palisade/catalog/permissions/alice", b"palisade/catalog/ttl/db"
REGIONS = (
    Region("s", b"/s/", Mode.STRICT, Policy.FAIL_CLOSED),
    Region("r", b"/r/", Mode.STRICT, Policy.REFETCH),
    Region("z", b"/z/", Mode.EVENTUAL, Policy.SAFE_DEFAULT, b"safe"),
)


class Node:
    """A served vault and its store. Time advances only while a reader sleeps."""

    def __init__(self, vault: Vault, driver: Driver) -> None:
        assert vault.page is not None
        self.vault, self.driver, self.page = vault, driver, vault.page
        self.now = 0
        self.on_sleep: Callable[[], None] = lambda: None
        follow(vault, driver)
        vault.staging.release(driver.store.revision)
        self.page.serve(10**12, 1)

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e9) + 1
        self.on_sleep()

    def write(self, key: bytes, value: bytes | None) -> int:
        """Committed and staged, not released."""
        self.driver.do(DeleteRange(key) if value is None else Put(key, value))
        self.vault.staging.stage(staged_of(self.driver, self.driver.store.revision))
        return self.driver.store.revision

    def reader(self, **options: Any) -> VaultReader:
        return VaultReader.over(self.vault, clock_ns=lambda: self.now, sleep=self.sleep, **options)


def filled() -> Driver:
    driver = full([(region_key(region.name), pack_region(region)) for region in REGIONS])
    for key in (b"/s/a", b"/s/b", LONG, b"/r/a", b"/z/a", b"/e/a", DENY, TTL):
        driver.do(Put(key, b"1"))
    return driver


@pytest.fixture(params=("memory", "lmdb"))
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    if request.param == "memory":
        vault = Vault(MemoryBackend(), FencePage(bytearray(FENCE_BYTES), b"thisboot"))
    else:
        vault = open_vault(tmp_path / "vault", map_bytes=1 << 20)
    yield Node(vault, filled())
    vault.close()


def test_reader_returns_what_the_store_has(node: Node) -> None:
    write_some(node.driver, random.Random(3), 200)
    follow(node.vault, node.driver)
    reader = node.reader()
    assert list(reader.range(b"\0")) == list(node.vault.range(b""))
    for item in node.vault.range(b""):
        assert (reader.get(item.key), reader.get_item(item.key)) == (item.value, item)
    for absent in (b"/s/none", LONG[:-1], LONG + b"y", LONG[:496]):
        assert reader.get(absent) is None
        assert reader.get_item(absent) is None
    assert [item.key for item in reader.prefix(b"/s/")] == [b"/s/a", b"/s/b", LONG]
    assert len(reader.range(b"/s/b", b"/s/b")) == len(reader.prefix(b"/none")) == 0
    reader.close()


def test_pending_key_waits_for_its_release_and_others_do_not(node: Node) -> None:
    reader, revision = node.reader(), node.write(b"/s/a", b"2")
    assert reader.get(b"/s/b") == b"1"
    assert node.now == 0

    def release() -> None:
        if node.now > 10**6:
            node.vault.staging.release(revision)

    node.on_sleep = release
    assert reader.get(b"/s/a") == b"2"
    assert node.now < 10**7
    assert reader.get_item(b"/s/a") == Item(b"/s/a", b"2", reader.get_item(b"/s/a").create_revision, revision, 2, 0)  # type: ignore[union-attr]
    follow(node.vault, node.driver)
    assert reader.get(b"/s/a") == b"2"
    reader.close()


def test_wait_for_release_is_bounded_and_the_error_is_retryable(node: Node) -> None:
    reader, revision = node.reader(wait_s=0.5), node.write(b"/s/a", None)
    for read in (reader.get, reader.get_item, reader.prefix):
        before = node.now
        with pytest.raises(Pending, match=f"change at revision {revision} that is not released yet") as refused:
            read(b"/s/a")
        assert refused.value.retry
        assert node.now - before == pytest.approx(0.5e9, rel=0.01)
    assert reader.get(b"/s/b") == b"1"
    node.vault.staging.release(revision)
    assert reader.get(b"/s/a") is None
    assert len(reader.prefix(b"/s/a")) == 0
    reader.close()


def test_range_is_of_one_revision_including_released_unapplied_changes(node: Node) -> None:
    reader, lv = node.reader(), node.vault.revision
    for key, value in ((b"/s/a", None), (b"/s/aa", b"2"), (b"/s/b", b"2"), (LONG + b"2", b"2"), (LONG, None)):
        revision = node.write(key, value)
    node.vault.staging.release(revision)
    found = reader.prefix(b"/s/")
    assert [(item.key, item.value) for item in found] == [(b"/s/aa", b"2"), (b"/s/b", b"2"), (LONG + b"2", b"2")]
    assert (found.revision, found.more) == (revision, False)
    assert reader.prefix(b"/e/").revision == lv
    limited = reader.prefix(b"/s/", limit=2)
    assert ([item.key for item in limited], limited.more) == ([b"/s/aa", b"/s/b"], True)
    assert list(reader.iterate(b"/s/", b"/s0")) == list(found)
    follow(node.vault, node.driver)
    assert list(reader.prefix(b"/s/")) == list(found)
    reader.close()


def test_leftover_pending_row_is_ignored(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vault passed it while it was not served: the entry is later, or gone."""
    node.write(b"/s/a", b"old")
    node.write(b"/s/b", b"old")
    node.page.refuse()
    node.driver.do(Put(b"/s/a", b"new"))
    node.driver.do(DeleteRange(b"/s/b"))
    follow(node.vault, node.driver)
    node.vault.staging.release(node.driver.store.revision)
    node.page.serve(10**12, 1)
    reader = node.reader()
    assert len(node.vault.staging.pending) == 2
    found = (reader.get(b"/s/a"), reader.get(b"/s/b"), [item.value for item in reader.prefix(b"/s/")])
    assert found == (b"new", None, [b"new", b"1"])
    monkeypatch.setattr(VaultSnapshot, "lv", property(lambda self: 0))
    assert reader.get(b"/s/a") == b"old", "so this is what the rule is for"
    reader.close()


def test_fenced_vault_fails_closed(node: Node) -> None:
    reader = node.reader()
    assert reader.get(b"/s/a") == b"1"
    node.page.refuse(FenceState.RECOVERING)
    for read in (reader.get, reader.get_item, reader.prefix, reader.iterate):
        for key in (b"/s/a", b"/e/a", b"palisade/x"):
            with pytest.raises(Fenced, match="the node is recovering") as refused:
                read(key)
            assert refused.value.retry
    node.page.serve(10**12, 1)
    assert reader.get(b"/s/a") == b"1"
    node.now = 10**12 + 5 * 10**8
    with pytest.raises(Fenced, match=r"lease expired 0\.500 s ago"):
        reader.get(b"/s/a")
    assert node.now == 10**12 + 5 * 10**8, "no read waits for a lease"
    reader.close()


def test_refetch_asks_the_cluster_only_while_fenced(node: Node) -> None:
    asked: list[Any] = []

    def fetch(key: bytes) -> Item | None:
        asked.append(key)
        return Item(key, b"fetched", 1, 2, 1, 0) if key == b"/r/a" else None

    def fetch_range(*wanted: Any) -> Rows:
        asked.append(wanted)
        return Rows(7, ())

    reader, alone = node.reader(fetch=fetch, fetch_range=fetch_range, wait_s=0), node.reader(wait_s=0)
    assert reader.get(b"/r/a") == b"1"
    node.page.refuse()
    assert (reader.get(b"/r/a"), reader.get(b"/r/none")) == (b"fetched", None)
    assert reader.prefix(b"/r/", limit=3).revision == 7
    assert asked == [b"/r/a", b"/r/none", (b"/r/", b"/r0", 3)]
    with pytest.raises(Fenced):
        reader.get(b"/s/a")
    with pytest.raises(Fenced):
        reader.range(b"/r/", b"/s/b")
    with pytest.raises(Fenced, match="this reader has no fetch"):
        alone.get(b"/r/a")
    node.page.serve(10**12, 1)
    node.write(b"/r/a", b"2")
    assert reader.get(b"/r/a") == b"fetched", "a pending key is asked for as well"
    assert len(asked) == 4
    reader.close()
    alone.close()


def test_failed_fetch_is_retryable_with_refetch_and_a_denial_with_deny(node: Node) -> None:
    def fetch(key: bytes) -> Item | None:
        raise ConnectionError("nobody there")

    reader = node.reader(fetch=fetch)
    assert reader.get(DENY) == b"1"
    node.page.refuse()
    with pytest.raises(Fenced, match="reading from the cluster failed: nobody there"):
        reader.get(b"/r/a")
    for read in (reader.get, reader.prefix):
        with pytest.raises(Denied, match="denies such reads") as refused:
            read(DENY)
        assert not refused.value.retry
    allowed = node.reader(fetch=lambda key: Item(key, b"granted", 1, 2, 1, 0))
    assert allowed.get(DENY) == b"granted"
    reader.close()
    allowed.close()


def test_safe_default_ignores_a_stale_ttl_rule(node: Node) -> None:
    """Seed 000, TTL: infinite while fenced, whatever the vault has."""
    reader = node.reader(wait_s=0)
    node.write(TTL, b"shorter")
    assert reader.get(TTL) == INFINITE_TTL
    node.vault.staging.release(node.driver.store.revision)
    assert reader.get(TTL) == b"shorter"
    node.page.refuse()
    assert (reader.get(TTL), reader.get(b"/z/a"), reader.get(b"/z/never")) == (INFINITE_TTL, b"safe", b"safe")
    assert reader.get_item(b"/z/a") == Item(b"/z/a", b"safe", 0, 0, 0, 0)
    with pytest.raises(Fenced):
        reader.prefix(b"/z/")
    assert reader.region_of(b"/z/a").name == "z"
    reader.close()


def test_wait_for_returns_once_the_revision_is_applied(node: Node) -> None:
    reader, lv = node.reader(), node.vault.revision
    assert reader.wait_for(lv, 0) == lv
    with pytest.raises(NotReached, match=rf"at revision {lv} and did not reach {lv + 1} within 2 s"):
        reader.wait_for(lv + 1, 2)
    assert node.now == pytest.approx(2e9)
    node.driver.do(Put(b"/e/a", b"2"))
    node.on_sleep = lambda: follow(node.vault, node.driver)
    assert reader.wait_for(lv + 1, 2) == lv + 1
    assert reader.get(b"/e/a") == b"2"
    reader.close()


async def test_async_reads_match_synchronous_reads(node: Node) -> None:
    async def fetch(key: bytes) -> Item | None:
        await asyncio.sleep(0)
        return None

    reader = VaultReader.over(node.vault, fetch=fetch, clock_ns=lambda: node.now, wait_s=5)
    assert await reader.get_async(b"/s/a") == b"1"
    assert await reader.get_async(b"/s/none") is None
    assert list(await reader.prefix_async(b"/s/")) == list(reader.prefix(b"/s/"))
    revision = node.write(b"/s/a", b"2")
    waiting = [asyncio.ensure_future(read) for read in (reader.get_async(b"/s/a"), reader.get_async(b"/s/a"))]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    node.vault.staging.release(revision)
    assert await asyncio.gather(*waiting) == [b"2", b"2"]
    following = asyncio.ensure_future(reader.wait_for_async(revision, 5))
    await asyncio.sleep(0)
    follow(node.vault, node.driver)
    assert await following == revision
    node.page.refuse()
    assert await reader.get_item_async(b"/r/a") is None
    with pytest.raises(TypeError, match="use get_async"):
        reader.get(b"/r/a")
    with pytest.raises(Fenced):
        await reader.range_async(b"/s/a")
    reader.close()


async def test_reader_takes_text_for_keys(node: Node) -> None:
    """As `put` does; `prefix` raised an error of `bytes.rstrip` (issue 16, 5)."""
    reader = node.reader()
    assert reader.get("/s/a") == reader.get(b"/s/a") is not None
    assert reader.get_item("/s/a") == await reader.get_item_async("/s/a") == reader.get_item(b"/s/a")
    assert reader.prefix("/s/").items == (await reader.prefix_async("/s/")).items == reader.prefix(b"/s/").items
    assert len(reader.range("/s/a", "/s/b")) == 1
    assert [item.key for item in reader.iterate("/s/a", "/s/b")] == [b"/s/a"]
    assert reader.get("é" * 1000) is None
    reader.close()


@pytest.mark.parametrize("key", ["/s/a", bytearray(b"/s/a")])
def test_get_takes_text_on_the_fast_path(node: Node, monkeypatch: pytest.MonkeyPatch, key: str | bytearray) -> None:
    """It took ten times as long as with bytes."""
    reader = node.reader()
    expected = reader.get(b"/s/a")
    monkeypatch.delattr(VaultReader, "get_item")
    assert expected is not None
    assert reader.get(key) == expected
    reader.close()


async def test_invalid_limits_are_refused(node: Node) -> None:
    """-1 returned no key and `more`; a number that is too large was reported as a full disk."""
    reader = node.reader()
    for wrong, error in ((-1, ValueError), (1 << 63, ValueError), ("1", TypeError), (1.5, TypeError)):
        for read in (reader.range, reader.prefix):
            with pytest.raises(error, match="limit must be"):
                read(b"/s/", limit=wrong)  # type: ignore[call-overload]
        with pytest.raises(error, match="limit must be"):
            await reader.range_async(b"/s/", limit=wrong)  # type: ignore[arg-type]
    assert reader.prefix(b"/s/", (1 << 63) - 1) == reader.prefix(b"/s/")
    assert await reader.prefix_async(b"/s/", (1 << 63) - 1) == reader.prefix(b"/s/")
    reader.close()


def test_invalid_keys_are_refused(node: Node) -> None:
    reader = node.reader()
    for wrong in (None, 7, [7]):
        for read in (reader.get, reader.get_item, reader.prefix, reader.range):
            with pytest.raises(TypeError, match=f"must be bytes or text, not {type(wrong).__name__}"):
                read(wrong)  # type: ignore[operator]
    with pytest.raises(ValueError, match="at least one byte"):
        reader.get(b"")
    assert reader.get(b"x" * 100_000) is None
    reader.close()
    reader.close()
    with pytest.raises(VaultUnusable, match="the reader is closed"):
        reader.get(b"/s/a")


# Over files


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Node]:
    """In real time, for readers that open the folder, as other processes do."""
    vault = open_vault(tmp_path / "vault")
    node = Node(vault, filled())
    node.page.refuse()
    node.page.serve(clock_ns() + 10**13, 1)
    yield node
    node.vault.close()


def test_reader_verifies_values_at_every_read(tmp_path: Path) -> None:
    vault = open_vault(tmp_path / "vault")
    Node(vault, filled())
    vault.close()
    data = tmp_path / "vault" / DATA
    whole = data.read_bytes()
    data.write_bytes(whole.replace(b"/s/a1", b"/s/a2"))
    vault = open_vault(tmp_path / "vault")
    assert vault.page is not None
    vault.page.serve(clock_ns() + 10**13, 1)
    reader = VaultReader.over(vault)
    reader.fence  # noqa: B018
    for read in (reader.get, reader.get_item, reader.prefix):
        with pytest.raises(VaultDamaged, match="palisade vault reset"):
            read(b"/s/a")
    assert reader.get(b"/s/b") == b"1"
    reader.close()
    vault.close()


def test_folder_without_vault_or_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VaultForeign, match="there is no vault in"):
        VaultReader(tmp_path / "nothing")
    vault = open_vault(tmp_path / "vault")
    Node(vault, filled())
    vault.close()
    page = tmp_path / "vault" / FENCE_FILE
    whole = page.read_bytes()
    for content in (b"", b"x" * 500):
        page.write_bytes(content)
        with pytest.raises(VaultForeign, match="fence page"):
            VaultReader(tmp_path / "vault")
    page.unlink()
    with pytest.raises(VaultUnusable, match="start its node"):
        VaultReader(tmp_path / "vault")
    page.write_bytes(whole)
    reader, other = VaultReader(tmp_path / "vault"), VaultReader(str(tmp_path / "vault"))
    for one in (reader, other):
        with pytest.raises(Fenced, match="the node is fenced"):
            one.get(b"/s/a")
    reader.close()
    with pytest.raises(Fenced):
        other.get(b"/s/a")
    other.close()


def test_own_open_vault_is_not_opened_again(served: Node, tmp_path: Path) -> None:
    with pytest.raises(VaultUnusable, match="already open in this process"):
        VaultReader(tmp_path / "vault")
    reader = VaultReader.over(served.vault)
    assert reader.get(b"/s/a") == b"1"
    reader.close()


def test_threads_may_share_a_reader(served: Node) -> None:
    reader, wrong = VaultReader.over(served.vault, wait_s=5), []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            found = reader.get(b"/s/a"), reader.get(b"/s/none"), len(reader.prefix(b"/s/"))
            if found[0] is None or found[1:] != (None, 3):
                wrong.append(found)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(100):
        revision = served.write(b"/s/a", b"%d" % number)
        served.vault.staging.release(revision)
        follow(served.vault, served.driver)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert reader.get(b"/s/a") == b"99"
    reader.close()


def test_reader_changes_to_the_new_vault_after_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "vault"
    vault = open_vault(path)
    Node(vault, filled())
    vault.close()
    reader = VaultReader(path)
    with pytest.raises(Fenced):
        reader.get(b"/s/a")
    VaultDirectory(path).put_aside()
    with pytest.raises(Fenced):
        reader.get(b"/s/a")
    made = open_vault(path)
    made.close()
    reader.close()
