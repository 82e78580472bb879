"""A snapshot by difference, chunk by chunk: committed chunks stay useful, LV moves at the end (issue 3, R5, R11)."""

from __future__ import annotations

import random

import pytest

from palisade.base.digest import unpack_sums
from palisade.metastore.history import is_tombstone
from palisade.metastore.ordered_map import Table
from palisade.metastore.record import LINK_BYTES
from palisade.metastore.requests import DeleteRange, Put
from palisade.vault.change import Item, VaultEvent
from palisade.vault.errors import VaultDiverged, VaultGap, VaultRecovering
from palisade.vault.incoming_difference import Incoming
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.position import KnownSpan, Recovering, begun, merged, pack_recovering, unpack_recovering
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.vault_feed import follow, full, items_of, state_of, write_some


def rows_of(driver: Driver) -> list[tuple[bytes, bytes]]:
    rows = driver.tables.scan(Table.KEY, b"", None)
    return [(key, row[LINK_BYTES:]) for key, row in rows if not is_tombstone(row)]


def fetch_all(incoming: Incoming, driver: Driver) -> None:
    rows = [row for _, row in rows_of(driver)]
    incoming.put(rows, b"", None)
    ours = {key for key, _ in incoming._vault.entries(b"", None)}
    incoming.repair((), ours - {key for key, _ in rows_of(driver)})


def finish(incoming: Incoming, driver: Driver) -> None:
    digest = driver.store.digest()
    incoming.finish(digest.chain, unpack_sums(digest.buckets))


def test_incoming_fills_an_empty_vault() -> None:
    driver, vault = full([]), Vault(MemoryBackend())
    write_some(driver, random.Random(1), 150)
    incoming = Incoming(vault, driver.store.revision, notify=False)
    fetch_all(incoming, driver)
    finish(incoming, driver)
    assert items_of(vault) == state_of(driver)
    assert (vault.revision, vault.key_count) == (driver.store.revision, driver.store.key_count)
    write_some(driver, random.Random(2), 100)
    follow(vault, driver)
    assert items_of(vault) == state_of(driver)


def test_unfinished_snapshot_refuses_reads_and_keeps_lv() -> None:
    driver, backend = full([(b"a", b"1"), (b"b", b"2")]), MemoryBackend()
    vault = Vault(backend)
    follow(vault, driver, 2)
    Incoming(vault, 3, notify=False)
    for again in (vault, Vault(backend)):
        assert (again.revision, again.recovering) == (2, Recovering(3, (KnownSpan(None, 2),)))
        for read in (lambda: again.get(b"a"), lambda: list(again.range(b"")), lambda: follow(again, driver)):  # noqa: B023
            with pytest.raises(VaultRecovering, match="between revision 2 and 3"):
                read()


def test_incoming_does_not_finish_while_a_bucket_differs() -> None:
    driver, vault = full([(b"a", b"1"), (b"b", b"2")]), Vault(MemoryBackend())
    incoming = Incoming(vault, 3, notify=False)
    incoming.put([rows_of(driver)[0][1]], b"", None)
    with pytest.raises(VaultDiverged, match="1 bucket sums of the snapshot of revision 3 differ"):
        finish(incoming, driver)
    assert (vault.revision, vault.recovering is not None) == (0, True)
    incoming.put([row for _, row in rows_of(driver)], b"", None)
    finish(incoming, driver)
    assert vault.revision == 3


def test_malformed_or_later_row_is_refused() -> None:
    driver, vault = full([(b"a", b"1"), (b"b", b"2")]), Vault(MemoryBackend())
    incoming = Incoming(vault, 2, notify=False)
    early, late = (row for _, row in rows_of(driver))
    for wrong in (late, early[:-1], early[:10], b""):
        with pytest.raises(VaultDiverged, match="is malformed"):
            incoming.put([wrong], b"", None)
    assert vault.key_count == 0


def test_snapshot_below_the_vaults_revision_is_refused() -> None:
    driver, vault = full([(b"a", b"1"), (b"b", b"2")]), Vault(MemoryBackend())
    follow(vault, driver)
    with pytest.raises(VaultGap, match="revision 2 can't replace content of revision 3"):
        Incoming(vault, 2, notify=False)
    Incoming(vault, 9, notify=False).put((), b"", b"m")
    with pytest.raises(VaultGap, match="of revision 9"):
        Incoming(vault, 8, notify=False)


def test_difference_reports_exactly_the_changes() -> None:
    driver, backend = full([(b"same", b"1"), (b"gone", b"2"), (b"old", b"3")]), MemoryBackend()
    vault = Vault(backend)
    follow(vault, driver)
    for command in (DeleteRange(b"gone"), Put(b"old", b"33"), Put(b"new", b"4")):
        driver.do(command)
    incoming = Incoming(vault, driver.store.revision, notify=True)
    incoming.put([rows_of(driver)[0][1]], b"", b"new\0")
    vault = Vault(backend)
    incoming = Incoming(vault, driver.store.revision, notify=True)
    fetch_all(incoming, driver)
    finish(incoming, driver)
    gone, new = Item(b"gone", b"2", 3, 3, 1, 0), Item(b"new", b"4", 7, 7, 1, 0)
    old, older = Item(b"old", b"33", 4, 6, 2, 0), Item(b"old", b"3", 4, 4, 1, 0)
    assert vault.difference() == (
        [VaultEvent(b"gone", 7, None, gone), VaultEvent(b"new", 7, new), VaultEvent(b"old", 6, old, older)], None
    )  # fmt: skip
    first, after = vault.difference(limit=2)
    assert ([event.key for event in first], after) == ([b"gone", b"new"], b"new")
    vault.forget_difference(after)
    vault = Vault(backend)
    assert [event.key for event in vault.difference()[0]] == [b"old"]
    assert vault.has_difference
    vault.forget_difference()
    assert not vault.has_difference
    assert Vault(backend).difference() == ([], None)


def test_difference_reports_the_value_before_the_first_of_two_snapshots() -> None:
    """A crash in a snapshot, and another one to a later target: listeners never saw what was between the two."""
    driver, backend = full([(b"changed", b"1"), (b"gone", b"2")]), MemoryBackend()
    follow(Vault(backend), driver)
    for value in (b"passing", b"last"):
        for key in (b"changed", b"gone", b"passing"):
            driver.do(Put(key, value))
        if value == b"last":
            driver.do(DeleteRange(b"gone"))
            driver.do(DeleteRange(b"passing"))
        vault = Vault(backend)
        incoming = Incoming(vault, driver.store.revision, notify=True)
        fetch_all(incoming, driver)
    finish(incoming, driver)
    changed, before = Item(b"changed", b"last", 2, 7, 3, 0), Item(b"changed", b"1", 2, 2, 1, 0)
    gone = Item(b"gone", b"2", 3, 3, 1, 0)
    events = [VaultEvent(b"changed", 7, changed, before), VaultEvent(b"gone", 11, None, gone)]
    assert vault.difference() == (events, None)


def test_difference_of_large_values_is_reported_in_small_parts() -> None:
    """A thousand values of a MiB with their previous values are 2 GB."""
    driver, vault = full([(b"k%02d" % number, bytes(1 << 20)) for number in range(40)]), Vault(MemoryBackend())
    incoming = Incoming(vault, driver.store.revision, notify=True)
    fetch_all(incoming, driver)
    finish(incoming, driver)
    notified: list[bytes] = []
    until: bytes | None = b""
    while until is not None:
        events, until = vault.difference()
        assert len(events) <= 16
        notified += [event.key for event in events]
        vault.forget_difference(until)
    assert notified == [b"k%02d" % number for number in range(40)]
    assert not vault.has_difference


def test_coverage_continues_where_it_stopped() -> None:
    mark = begun(base=10, target=50)
    assert mark.next_stretch() == (b"", None, 10)
    mark = mark.covered(b"", b"g")
    assert mark.coverage == (KnownSpan(b"g", 50), KnownSpan(None, 10))
    assert mark.next_stretch() == (b"g", None, 10)
    later = mark.towards(60)
    assert later.next_stretch() == (b"", b"g", 50)
    later = later.covered(b"", b"c")
    assert later.coverage == (KnownSpan(b"c", 60), KnownSpan(b"g", 50), KnownSpan(None, 10))
    later = later.covered(b"c", b"g")
    assert later.coverage == (KnownSpan(b"g", 60), KnownSpan(None, 10))
    done = later.covered(b"g", None)
    assert (done.coverage, done.next_stretch(), done.highest) == ((KnownSpan(None, 60),), None, 60)


def test_coverage_is_bounded_and_never_claims_too_much() -> None:
    segments = tuple(KnownSpan(bytes([n]), 100 - n) for n in range(1, 40))
    found = merged((*segments, KnownSpan(None, 5)))
    assert len(found) <= 16
    assert found[-1] == KnownSpan(None, 5)
    for n in range(1, 40):
        claimed = next(s.revision for s in found if s.until is None or s.until >= bytes([n]))
        assert claimed <= 100 - n


def test_recovery_marks_round_trip() -> None:
    mark = Recovering(50, (KnownSpan(b"g", 50), KnownSpan(None, 10)))
    assert unpack_recovering(pack_recovering(mark)) == mark
