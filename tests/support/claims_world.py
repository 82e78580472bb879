"""Processes that share a store in simulated time: any of them can be paused, killed, or cut off from the store.

The store expires leases by its own clock, as a leader does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from palisade.base.content import Content
from palisade.client.bulk_puts import Many
from palisade.client.claims import Leadership, Lock
from palisade.client.lease import Lease
from palisade.client.store_api import StoreApi
from palisade.client.watch_handle import WatchHandle
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import Command, Range, WatchRequest
from palisade.metastore.results import RangeResult
from palisade.node.local_store import LocalWatch
from palisade.raftgroup.errors import Unavailable
from palisade.service.callers import UNRESTRICTED
from palisade.service.housekeeping import due
from palisade.service.key_values import KeyValues
from tests.support.fake_group import FakeGroup, fake_group
from tests.support.hand_clock import Clock
from tests.support.simulation import Process, Simulation

REQUEST_S = 0.01
LOOK_S = 0.1
CUT_OFF_S = 5.0


class SimulatedStore(StoreApi):
    """The client of one process. `cut_off`: its requests fail after `CUT_OFF_S`, and its watches hear nothing.
    `refuses`: the error of each request."""

    def __init__(self, service: KeyValues) -> None:
        self._service = service
        self.cut_off = False
        self.refuses: Exception | None = None

    async def _answer(self) -> None:
        await asyncio.sleep(REQUEST_S)
        if self.cut_off:
            await asyncio.sleep(CUT_OFF_S)
            raise Unavailable("cut off")
        if self.refuses is not None:
            raise self.refuses

    async def _write(self, request: Command, timeout_s: float | None = None) -> Any:
        await self._answer()
        return await self._service.write(request, timeout_s=timeout_s, caller=UNRESTRICTED)

    async def _read(self, request: Range, timeout_s: float | None = None) -> RangeResult:
        await self._answer()
        return await self._service.range(request, timeout_s=timeout_s, caller=UNRESTRICTED)

    async def _call(self, name: str, *arguments: Any) -> Any:
        raise AssertionError(f"unexpected call {name}")

    def _put_one_of(self, many: Many, key: Content, value: Content) -> bool:
        raise AssertionError("a claim puts one key at a time")

    def _watch(self, request: WatchRequest, progress_s: float | None) -> WatchHandle:
        return LocalWatch(self._service, request, progress_s, lambda _: None)


class SimulationClock(Clock):
    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def now(self) -> float:
        return self._simulation.now


class ClaimsWorld:
    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.group: FakeGroup = fake_group(clock=SimulationClock(self.simulation))
        self._service = KeyValues(self.group, self.group.store)
        self._expire()

    def close(self) -> None:
        self.simulation.close()

    def process(self, name: str) -> Holder:
        return Holder(self, name, self.simulation.process(name))

    def store(self) -> SimulatedStore:
        return SimulatedStore(self._service)

    def value(self, key: bytes) -> bytes | None:
        kvs = self.group.store.range(Range(key)).kvs
        return kvs[0].value if kvs else None

    def _expire(self) -> None:
        for command in due(self.group.store, self.group.clock):
            self.group.apply([encode_command(command)])
        self.simulation.after(LOOK_S, self._expire)


class Holder:
    """One process with a client. Its clock runs while it is paused."""

    def __init__(self, world: ClaimsWorld, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.store = world.store()
        self._world = world

    def lock(self, name: str = "/locks/a", ttl_s: float = 3, timeout_s: float | None = None) -> Lock:
        return Lock(self.store, name, ttl_s=ttl_s, timeout_s=timeout_s, clock=self.process.now)

    def campaign(self, value: str, name: str = "/leader", ttl_s: float = 3) -> Leadership:
        return Leadership(self.store, name, value, ttl_s=ttl_s, clock=self.process.now)

    def lease(self, ttl_s: float = 3) -> Lease:
        return Lease(self.store, ttl_s, clock=self.process.now)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._world.simulation.run(self.process, coroutine)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.process.start(coroutine)

    def until(self, condition: Callable[[], bool], within_s: float = 30.0) -> None:
        self._world.simulation.run_until(condition, within_s=within_s)
