"""Backups as an administrator has them: bytes, checked, and what they are of.

They are made by what `/v1/backup` sends (`palisade/api/backups.py`), in the process of a node that may die meanwhile.
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
    """`floor`: the latest revision that any write had been answered with before it was asked for. `history`: what it is
    of, as the world has recorded it."""

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
    """What a cluster begins with behind a disaster: a `backup`, or what is left at a `survivor`. `past`: all that is
    committed in it, up to `revision`. `before`: the history that it is of; `kept`: up to which revision they are the
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
    """`store`: what its whole log comes to, with the entry behind it that tells of the break, at `index`."""

    id: str
    index: int
    store: MetaStore


def taking(now_ms: Callable[[], int]) -> Callable[[Any], Awaitable[bytes]]:
    """What a node does that is asked for a backup; others have their turn between two pieces."""

    async def take(node: Any) -> bytes:
        opened = await open_backup(node.services, CLUSTER, now_ms())
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
    """The tables of a backup that is whole, as they are in it."""
    tables = MemoryMap()
    for found in BackupParser("the backup").feed(data):
        if isinstance(found, bytes):
            for table, flat in open_piece(found)[1]:
                for key, value in zip(flat[::2], flat[1::2], strict=True):
                    tables.put(Table(table), key, value)
    return tables


def damaged_copy(data: bytes, chance: Random) -> tuple[bytes, str]:
    """Cut off, torn or flipped, and which."""
    if chance.random() < 0.3:
        return data[: chance.randrange(len(data))], "cut off"
    return spoiled(data, chance)
