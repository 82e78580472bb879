"""A snapshot on a simulated disk: committed pieces survive a crash, and it becomes the store completely, or not."""

from __future__ import annotations

import asyncio

import pytest

from palisade.base.snapshots import SnapshotMeta
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.ordered_map import APPLIED_KEY, Table, encode_applied
from palisade.metastore.store_errors import StoreFailed
from tests.sim.disk import Disk, SimStore
from tests.support.simulation import Simulation


async def pieces_of_a_store() -> tuple[SnapshotMeta, list[bytes]]:
    source = MemoryStore("source")
    for number in range(6):
        source.put(Table.KEY, b"k%d" % number, b"v")
    source.put(Table.META, APPLIED_KEY, encode_applied(9, 2))
    reader = await source.open_snapshot()
    found: list[bytes] = []
    while (piece := reader.chunk(len(found))) is not None:
        found.append(piece)
    return reader.meta, found


class Ground:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> None:
        monkeypatch.setattr("palisade.metastore.snapshot.PIECE_BYTES", 20)
        self.simulation = Simulation(seed)
        self.disk = Disk(self.simulation, "n1")
        self.process = self.simulation.process("n1")
        self.meta, self.pieces = self.simulation.run(self.process, pieces_of_a_store())
        assert len(self.pieces) > 4

    async def receive(self, count: int) -> SimStore:
        store = SimStore(self.disk)
        writer = store.receive_snapshot(self.meta)
        for number in range(count):
            writer.write(number, self.pieces[number])
            await asyncio.sleep(0.01)
        return store

    async def install(self) -> None:
        store = await self.receive(len(self.pieces))
        writer = store._writer
        assert writer is not None
        await writer.finish()

    def next_piece(self) -> int:
        return SimStore(self.disk).receive_snapshot(self.meta).next_chunk

    def stored(self) -> int:
        return len(SimStore(self.disk).content()[Table.KEY])


def test_restart_continues_after_the_committed_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.simulation.run(ground.process, ground.receive(3))
    ground.process.kill()
    ground.disk.killed(power=True)
    assert ground.next_piece() == 2


def test_process_killed_during_install_has_the_old_or_the_new_store(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for seed in range(40):
        ground = Ground(monkeypatch, seed)
        ground.process.start(ground.install())
        ground.simulation.run_for(0.01 * len(ground.pieces) + 0.0001 * seed)
        ground.process.kill()
        ground.disk.killed(power=seed % 2 == 0)
        found.add(ground.stored())
    assert found == {0, 6}


def test_full_disk_refuses_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.disk.full = True
    with pytest.raises(StoreFailed, match="can't be written"):
        ground.simulation.run(ground.process, ground.install())
    assert (ground.next_piece(), ground.stored()) == (0, 0)
