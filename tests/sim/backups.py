"""Backups as an administrator has them: bytes, checked, with the history that they belong to.

They are created by the code of `/v1/backup` (`palisade/api/backups.py`), in the process of a node that may die
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from palisade.api.backups import open_backup
from palisade.metastore.backup import BackupHeader, BackupParser
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.ordered_map import Table
from palisade.metastore.results import RevisionEvents
from palisade.metastore.snapshot import open_piece
from palisade.metastore.state_machine import MetaStore
from tests.sim.damage import spoiled
from tests.sim.history import History

CLUSTER = "sim"


@dataclass(frozen=True, slots=True)
class Backup:
    """`floor`: the latest revision acknowledged to any write before the backup was requested. `history`: the committed
    history recorded by the world."""

    data: bytes
    header: BackupHeader
    floor: int
    history: History

    @property
    def revision(self) -> int:
        return self.header.revision

    def base(self, generation: int) -> Base:
        past = (events for events in self.history.revisions() if events.revision <= self.revision)
        return Base(tuple(past), self.revision, generation, self.history, self.revision, backup=self)


@dataclass(frozen=True, slots=True)
class Base:
    """The initial state of a cluster after a disaster: a `backup`, or the data of a `survivor`. `past`: all changes
    committed in it, up to `revision`. `before`: the preceding history; `kept`: the revision up to which both are the
    same."""

    past: tuple[RevisionEvents, ...]
    revision: int
    generation: int
    before: History
    kept: int
    backup: Backup | None = None
    survivor: Survivor | None = None


@dataclass(frozen=True, slots=True)
class Survivor:
    """`store`: the state after its whole log and the entry of the break, at `index`."""

    id: str
    index: int
    store: MetaStore


def taking(wall_ns: Callable[[], int]) -> Callable[[Any], Awaitable[bytes]]:
    """The node's work for a backup request; others have turns between two pieces."""

    async def take(node: Any) -> bytes:
        opened = await open_backup(node.services, CLUSTER, wall_ns() // 1_000_000)
        try:
            parts = []
            for data in opened.frames:
                parts.append(data)
                await asyncio.sleep(0)
            return b"".join(parts)
        finally:
            opened.close()

    return take


def content_of(data: bytes) -> MemoryMap:
    """The tables in a complete backup."""
    tables = MemoryMap()
    for found in BackupParser("the backup").feed(data):
        if isinstance(found, bytes):
            for table, flat in open_piece(found)[1]:
                for key, value in zip(flat[::2], flat[1::2], strict=True):
                    tables.put(Table(table), key, value)
    return tables


def damaged_copy(data: bytes, chance: Random) -> tuple[bytes, str]:
    """Truncated, torn or flipped, and which."""
    if chance.random() < 0.3:
        return data[: chance.randrange(len(data))], "cut off"
    return spoiled(data, chance)
