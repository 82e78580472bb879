"""A replica of the metadata store and the vault of another node, in one process: the cost of a recovery without a
network.

The store, the source and the vault are those of a node, on LMDB; only the Raft group is omitted, which takes part in a
recovery by a pin only. Thus commands are applied here as the group would apply them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from harness.stream import VALUE
from harness.wrk import LoadFailed
from palisade.base.clock import SystemClock
from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.requests import Command, Compact, FoundCluster, Put
from palisade.metastore.state_machine import MetaStore
from palisade.recovery.catchup import Difference
from palisade.recovery.cost_estimate import Rates
from palisade.recovery.follower import Follower
from palisade.recovery.lifecycle import Component, Lifecycle, Part
from palisade.recovery.listeners import Notification
from palisade.recovery.ports import NoResources
from palisade.recovery.recovery import Settings, World
from palisade.recovery.report import RecoveryReport
from palisade.recovery.store_source import StoreSource
from palisade.recovery.vault_component import BATCHES_PER_COMMIT, ComponentPort, RecoveryClock
from palisade.vault.opening import open_vault

PREFIX = b"flights/2013/"
NODE = "n9"
BATCH = 500
COLLECT_BLOCKS = 64
WAITING_MAX = 100_000
"""Entries that may wait for the disk of the store."""


class Replica:
    """`async with` it. Keys are numbered from 0 on."""

    def __init__(self, folder: Path) -> None:
        self._tables = LmdbStore(folder)
        self.store = MetaStore(self._tables)
        self.source = StoreSource(
            NODE, self.store, barrier=_turn, propose=self._propose, others=_turn, news=lambda _: asyncio.sleep(1)
        )
        self._clock_ms = 0
        self._do([FoundCluster("bench")])

    async def __aenter__(self) -> Replica:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tables.close()

    def _do(self, commands: list[Command]) -> list[Any]:
        self._clock_ms += 1
        index, stamp = self.store.applied[0] + 1, [1_700_000_000_000 + self._clock_ms, self._clock_ms]
        wires = self.store.apply(index, 1, stamp, [encode_command(command) for command in commands])
        return [decode_result(wire) for wire in wires]

    async def _propose(self, command: Command) -> Any:
        return self._do([command])[0]

    async def put(self, numbers: Iterable[int]) -> None:
        """One revision for each key; everything is on disk on return."""
        waiting: list[Command] = []
        for number in numbers:
            waiting.append(Put(PREFIX + b"%010d" % number, VALUE))
            if len(waiting) == BATCH:
                await self._apply(waiting)
                waiting = []
        if waiting:
            await self._apply(waiting)
        await self._tables.flush()

    async def _apply(self, commands: list[Command]) -> None:
        self._do(commands)
        if self._tables.waiting_entries > WAITING_MAX:
            await self._tables.flush()

    async def compact(self) -> None:
        """Only the latest revision is retained: a lagging node can only take a snapshot."""
        self._do([Compact(self.store.revision)])
        while self.store.collect(COLLECT_BLOCKS):
            if self._tables.waiting_entries > WAITING_MAX:
                await self._tables.flush()
        await self._tables.flush()


class Nothing(Component):
    """A listener that does nothing."""

    def __init__(self) -> None:
        self.notified = 0
        self.lifecycle = Lifecycle([Part("nothing", self)])

    async def start(self) -> None:
        self.lifecycle.listeners.listen("nothing", self._listen)

    async def _listen(self, notification: Notification) -> None:
        self.notified += 1


@dataclass(frozen=True, slots=True)
class Recovered:
    """`seconds`: from opening the vault until LV = LM."""

    seconds: float
    report: RecoveryReport


async def recover(source: StoreSource, path: Path) -> Recovered:
    """A start of the node, which has ended again when this returns. Raises LoadFailed if the listener missed anything.

    All retained revisions are replayed; a node would take a snapshot if that is much cheaper.
    """
    began = time.perf_counter()
    vault = open_vault(path)
    listener = Nothing()
    try:
        port = ComponentPort(listener.lifecycle, lambda: vault)
        clock = RecoveryClock(SystemClock(), gentle=False)
        world = World(vault, source, port, NoResources(), clock, Difference(0))
        settings = Settings(NODE, rates=Rates(advantage=inf), batches_per_commit=BATCHES_PER_COMMIT)
        report = await Follower(world, settings).recover()
        seconds = time.perf_counter() - began
    finally:
        await listener.lifecycle.stop()
        vault.close()
    if report.revisions_replayed != listener.notified:
        raise LoadFailed(f"{report.revisions_replayed} revisions were replayed, the listener got {listener.notified}")
    return Recovered(seconds, report)


async def _turn(*_: object) -> None:
    await asyncio.sleep(0)
