"""Cluster id and generation are replicated state, and the generation never falls: R7, issue 3."""

from __future__ import annotations

import pytest

from palisade.metastore.digest import control_digest
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.lineage import LINEAGE_KEY, Lineage, decode_lineage, encode_lineage
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import BeginGeneration, FoundCluster, Put
from palisade.metastore.state_machine import MetaStore
from tests.support.meta_driver import Driver, opened_again


def test_new_store_has_no_cluster_id_and_the_first_generation(driver: Driver) -> None:
    assert driver.store.lineage == Lineage("", 1)


def test_first_cluster_id_is_permanent(driver: Driver) -> None:
    assert driver.do(FoundCluster("c1")).count == 1
    assert driver.do(FoundCluster("c2")).count == 0
    assert driver.store.lineage == Lineage("c1", 1)


def test_generation_never_decreases(driver: Driver) -> None:
    driver.do(FoundCluster("c1"))
    assert [driver.do(BeginGeneration(number)).count for number in (3, 2, 3, 1, -1)] == [1, 0, 0, 0, 0]
    assert driver.store.lineage == Lineage("c1", 3)


def test_lineage_change_is_not_a_revision(driver: Driver) -> None:
    driver.do(Put(b"a"))
    assert (
        driver.do(FoundCluster("c1")).revision == driver.do(BeginGeneration(2)).revision == driver.store.revision == 2
    )


def test_lineage_survives_restart_and_snapshot_and_affects_the_digest(driver: Driver) -> None:
    before = control_digest(driver.tables)
    driver.all(FoundCluster("c1"), BeginGeneration(2))
    assert MetaStore(opened_again(driver.tables)).lineage == Lineage("c1", 2)
    assert control_digest(driver.tables) != before


async def test_received_snapshot_contains_the_lineage() -> None:
    sender, receiver = MemoryStore("a"), MemoryStore("b")
    driver, copy = Driver(sender), MetaStore(receiver)
    driver.all(FoundCluster("c1"), BeginGeneration(2))
    reader = await sender.open_snapshot()
    writer = receiver.receive_snapshot(reader.meta)
    number = 0
    while (piece := reader.chunk(number)) is not None:
        writer.write(number, piece)
        number += 1
    await writer.finish()
    assert copy.lineage == driver.store.lineage == Lineage("c1", 2)


def test_batch_without_lineage_change_writes_no_lineage(driver: Driver) -> None:
    driver.do(Put(b"a"))
    assert driver.tables.get(Table.META, LINEAGE_KEY) is None


@pytest.mark.parametrize("stored", [b"", b"\xc1", b"\x01", encode_lineage(Lineage("c", 0)), b"\x92\x01\x01"])
def test_malformed_lineage_record_is_damage(stored: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="lineage"):
        decode_lineage(stored)
