"""Records that flip or tear on a simulated disk: the product's own code refuses them, and nothing else counts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from palisade.base.checksums import RowChecksums
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.ordered_map import Table
from palisade.raftgroup.errors import JournalCorrupt
from palisade.raftgroup.ports import Entry
from palisade.vault.errors import VaultDamaged
from palisade.vault.tables import VaultTable as VaultTable
from tests.sim.damage import Part, damaged, is_damage
from tests.sim.disk import Disk
from tests.support.simulation import Simulation

REFUSALS = {Part.JOURNAL: JournalCorrupt, Part.STORE: StoreCorrupt, Part.VAULT: VaultDamaged}


async def filled() -> Disk:
    disk = Disk(Simulation(1), "n1")
    for index in range(1, 6):
        disk.journal.append(Entry(b"command %d" % index, index, 1))
    disk.journal.disk.before_sync = _at_once  # no time passes here
    await disk.journal.sync()
    disk.stored[Table.KEY] = {b"s/a": b"one", b"s/b": b""}
    disk.backend.commit({VaultTable.META: {b"place": b"\0\0\0\7"}})
    return disk


async def _at_once() -> None: ...


@pytest.mark.parametrize("part", Part)
async def test_damaged_record_is_never_accepted(part: Part) -> None:
    disk = await filled()
    for seed in range(300):
        damage = damaged(disk, part, Random(seed))
        assert damage is not None
        with pytest.raises(REFUSALS[part]) as refused:
            damage.read()
        assert is_damage(refused.value)
        assert "--join" in str(refused.value) or "palisade vault reset" in str(refused.value)


@pytest.mark.parametrize("part", Part)
def test_empty_disk_has_nothing_to_damage(part: Part) -> None:
    assert damaged(Disk(Simulation(1), "n1"), part, Random(1)) is None


async def test_undetected_damage_is_what_the_node_starts_with(monkeypatch: Any) -> None:
    disk = await filled()
    before = dict(disk.stored[Table.KEY])
    monkeypatch.setattr(RowChecksums, "unseal", lambda self, table, key, sealed: sealed[:-8])
    chance = Random(3)
    for _ in range(20):
        damage = disk.damage = damaged(disk, Part.STORE, chance)
        assert damage is not None
        disk.read("journal")
        assert disk.damage is damage
        disk.read("store")
        assert disk.damage is None
    assert disk.stored[Table.KEY] != before
    assert disk.stored[Table.KEY].keys() == before.keys()
