"""Concurrent writes of several clients, with a record of every acknowledged one, and the check of that record.

Each worker writes keys that no other client writes: a new one with every write, and one register repeatedly. Thus the
record determines the required content: an acknowledged key has its value, was written once (version 1) and at the
revision that the client got; a register has been written as often as its version. A write that a node reports as
committed but not yet released (`ReleasePending`) must exist as well: a node reports that if it has not applied the
write within the deadline, for example after a slow fsync.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

from palisade.client import Client, OutcomeUnknown, Unavailable
from palisade.wire.fencing_errors import ReleasePending
from tests.support.processes import until

PREFIX = "load/"


@dataclass(slots=True)
class Register:
    """`acknowledged` writes of it for sure, `unknown` ones perhaps; the last acknowledged value."""

    acknowledged: int = 0
    unknown: int = 0
    value: bytes = b""
    ended_with: bytes = b""


@dataclass(slots=True)
class Record:
    """`acknowledged`: key -> (value, revision). Times are time.monotonic() of this process."""

    acknowledged: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    unknown: dict[bytes, bytes] = field(default_factory=dict)
    refused: int = 0
    registers: dict[bytes, Register] = field(default_factory=dict)
    spans: list[tuple[float, float]] = field(default_factory=list)
    """(sent at, acknowledged at) of every acknowledged write, in the order of acknowledgements."""

    def goes_on_after(self, moment: float) -> float | None:
        """Seconds from `moment` to the acknowledgement of the first write that was sent after it, if there is one."""
        start = bisect_left(self.spans, moment, key=lambda span: span[1])
        return next((ended - moment for began, ended in islice(self.spans, start, None) if began >= moment), None)

    def gap_s(self, since: float, until_: float) -> float:
        """The longest time without an acknowledgement between two moments."""
        times = [since, *(ended for _, ended in self.spans if since <= ended <= until_), until_]
        return max(later - earlier for earlier, later in pairwise(times))


class Load:
    """`async with Load(endpoints) as load:` writes until it is left. `name` separates the keys of two loads.

    One client for each endpoint, which tries its own endpoint first and never goes to the leader by itself, so that
    writes enter through every node. `workers` of each client write one after the other, each `pause_s` after its
    acknowledgement.
    """

    def __init__(
        self,
        endpoints: Iterable[str],
        name: str = "a",
        *,
        workers: int = 4,
        value_bytes: int = 16,
        pause_s: float = 0.002,
        timeout_s: float = 10.0,
    ) -> None:
        given = list(endpoints)
        self._rotations = [given[start:] + given[:start] for start in range(len(given))]
        self.prefix = f"{PREFIX}{name}/"
        self._workers = workers
        self._filling = b"." * value_bytes
        self._pause_s = pause_s
        self._timeout_s = timeout_s
        self.record = Record()
        self._stopping = False
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        for number, endpoints in enumerate(self._rotations):
            client = Client(endpoints, timeout_s=self._timeout_s, follow_leader=False)
            self._clients.append(await client.__aenter__())
            for worker in range(self._workers):
                self._tasks.append(asyncio.ensure_future(self._work(client, f"{number}-{worker}")))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> Record:
        """Every pending write completes first."""
        self._stopping = True
        try:
            await asyncio.gather(*self._tasks)
        finally:
            for client in self._clients:
                await client.close()
            self._clients = []
        return self.record

    async def writes(self, number: int, within_s: float = 30.0) -> None:
        """Wait until as many more writes were acknowledged."""
        target = len(self.record.acknowledged) + number
        record = self.record
        await until(lambda: len(record.acknowledged) >= target or self._ended_early(), f"{number} writes", within_s)

    async def writes_sent_after(self, moment: float, within_s: float = 30.0) -> float:
        """Wait until a write is acknowledged that was sent after `moment`; returns the seconds since then."""
        found: float = await until(
            lambda: self.record.goes_on_after(moment), "a write that was sent after the fault", within_s
        )
        return found

    def _ended_early(self) -> bool:
        """A worker met an unexpected error; `stop` raises it."""
        return any(task.done() for task in self._tasks)

    async def _work(self, client: Client, worker: str) -> None:
        register = self.record.registers.setdefault(f"{self.prefix}register-{worker}".encode(), Register())
        number = 0
        while not self._stopping:
            number += 1
            value = b"%d" % number + self._filling
            if number % 4 == 0:
                await self._write_register(client, f"{self.prefix}register-{worker}".encode(), register, value)
            else:
                await self._write_key(client, f"{self.prefix}{worker}/{number:08}".encode(), value)
            await asyncio.sleep(self._pause_s)

    async def _write_key(self, client: Client, key: bytes, value: bytes) -> None:
        began = time.monotonic()
        try:
            result = await client.put(key, value)
        except OutcomeUnknown:
            self.record.unknown[key] = value
        except Unavailable:
            self.record.refused += 1
        except ReleasePending as pending:
            self.record.acknowledged[key] = (value, pending.revision)
        else:
            self.record.acknowledged[key] = (value, result.revision)
            self.record.spans.append((began, time.monotonic()))

    async def _write_register(self, client: Client, key: bytes, register: Register, value: bytes) -> None:
        try:
            await client.put(key, value)
        except OutcomeUnknown:
            register.unknown += 1
            register.ended_with = value
            return
        except Unavailable:
            self.record.refused += 1
            return
        except ReleasePending:
            pass
        register.acknowledged += 1
        register.value = register.ended_with = value


async def check_record(record: Record, prefix: str, endpoints: Iterable[str]) -> None:
    """Every acknowledged write exists with its value and revision, exactly once; and there are no other keys."""
    async with Client(endpoints, timeout_s=10.0) as client:
        found = {kv.key: kv for kv in (await client.range(prefix, prefix=True)).kvs}
    lost = [key for key in record.acknowledged if key not in found]
    assert not lost, f"{len(lost)} of {len(record.acknowledged)} acknowledged writes are lost, such as {lost[:5]}"
    for key, (value, revision) in record.acknowledged.items():
        kv = found[key]
        shown = (kv.value, kv.mod_revision, kv.version)
        assert shown == (value, revision, 1), f"{key!r} is {shown}, and was acknowledged as {(value, revision)}"
    for key, register in record.registers.items():
        check_register(key, register, found.get(key))
    for key in set(found) - set(record.acknowledged) - set(record.registers):
        assert key in record.unknown, f"{key!r} exists, and no client got OutcomeUnknown for it"
        assert (found[key].value, found[key].version) == (record.unknown[key], 1)


def check_register(key: bytes, register: Register, kv: Any) -> None:
    version = kv.version if kv is not None else 0
    assert register.acknowledged <= version <= register.acknowledged + register.unknown, (
        f"{key!r} was written {register.acknowledged} times, perhaps {register.unknown} times more, and has version "
        f"{version}"
    )
    if register.unknown == 0 and kv is not None:
        assert kv.value == register.value
