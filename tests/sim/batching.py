"""A client of the pipeline: stages batches that are larger than one transaction, publishes and copies them with the
steps of the product (`pipeline.batch_steps`), abandons some of them, sweeps, changes single keys, and reads at cuts,
also from slices of vaults (issue 18).

It has the scenario of segments (`segmenting.py`), whose faults of the network cut it off between any two steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.metastore.errors import Compacted, InvalidRequest, TooManyPins
from palisade.metastore.requests import Command, DeleteRange, LeaseGrant, Put, Range, RequestId, Txn
from palisade.metastore.staged_rows import pack_chunk
from palisade.pipeline import cuts
from palisade.pipeline.batch_run import HOLD_MS
from palisade.pipeline.batch_steps import (
    ROWS,
    Draft,
    HoldRevision,
    ReleaseRevision,
    Steps,
    Together,
    alive_key,
    chunk_key,
    finish_overlapping,
    open_batch,
    sweep,
)
from palisade.service.callers import UNRESTRICTED
from palisade.service.scans import Scans
from palisade.wire.batch_records import KeySpan
from tests.sim.checkers.large_batches import KEYS, LargeBatches
from tests.sim.checkers.large_batches import SPAN as BOUNDS
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.outcomes import EXPECTED
from tests.sim.slicing import slice_at

SPAN = KeySpan(*BOUNDS)
STAGE_MS = 2_000
PIN_MS = 20_000
TRIES = 4


class Cut(Exception):
    """The process ends between two requests. What it has published is completed by others."""


class Batcher:
    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._going = client, going
        self._world, self._chance = client.world, client.world.chance
        self._batches = self._requests = self._cut = 0
        """`_cut`: the pinned revision of the last read."""

    async def run(self) -> None:
        often = [act for act in (self._publish, self._change, self._read) for _ in range(2)]
        acts = [*often, self._sweep, self._slice]
        while self._going():
            await asyncio.sleep(0.3 * self._chance.random())
            try:
                await self._chance.choice(acts)()
            except (Cut, *EXPECTED, PalisadeError, ConnectionError, TimeoutError):
                self._world.count("large batch: cut off")

    async def _ask(self, work: Callable[[Any], Any]) -> Any:
        host = self._chance.choice(self._world.members)
        async with asyncio.timeout(TIMEOUT_S):
            return await self._world.ask(self._client.process, self._client.name, host.http, work)

    async def _write(self, request: Command) -> Any:
        """Repeated with the same id, as the client of the product does. Raises Cut without an answer."""
        self._requests += 1
        request_id = RequestId(self._client.name, self._requests)
        for _ in range(TRIES):
            try:
                return await self._ask(lambda node: node.key_values.write(request, request_id, caller=UNRESTRICTED))
            except (*EXPECTED, ConnectionError, TimeoutError):
                await asyncio.sleep(0.3 * self._chance.random())
        raise Cut

    async def _run(self, steps: Steps, dies: float = 0.0) -> Any:
        """`dies`: how likely the process ends before a request."""
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as end:
                return end.value
            if self._chance.random() < dies:
                raise Cut
            answer = await self._execute(request)

    async def _execute(self, request: Any) -> Any:
        match request:
            case Together(requests):
                return [await self._write(each) for each in self._chance.sample(requests, len(requests))]
            case Range():
                return await self._ask(lambda node: node.key_values.range(request, caller=UNRESTRICTED))
            case Txn():
                return await self._write(request)
            case HoldRevision(name, span, revision):
                with suppress(Compacted, InvalidRequest, TooManyPins):
                    await self._ask(lambda node: Scans(node.key_values).pin(*span, name, revision, HOLD_MS))
            case ReleaseRevision(name, span):
                await self._ask(lambda node: Scans(node.key_values).unpin(*span, name))
        return None

    async def _publish(self) -> None:
        """In two tasks, one of which has a second attempt that is not committed."""
        self._batches += 1
        name = f"{self._client.name}-{self._batches}"
        rows = [(key, self._value()) for key in self._chance.sample(KEYS, len(KEYS) - 2)]
        lost = [(key, b"lost") for key, _ in rows]
        lease = (await self._write(LeaseGrant(STAGE_MS))).id
        alive = (await self._write(Put(alive_key(name), b"", lease))).revision
        for attempt, part in (("0", rows[:2]), ("lost", lost), ("1", rows[2:])):
            await self._write(Put(chunk_key(name, ROWS, attempt, 0), pack_chunk(part)))
        if self._chance.random() < 0.2:
            self._world.count("large batch: abandoned")
            return
        self._checker.drafted(name, rows)
        await self._run(open_batch(Draft(name, alive, (SPAN,), ("0", "1"))))
        await self._run(finish_overlapping([SPAN]), dies=0.15)

    def _value(self) -> bytes | None:
        if self._chance.random() < 0.2:
            return None
        return b"%s/%d" % (self._client.name.encode(), self._chance.getrandbits(30))

    async def _change(self) -> None:
        """As a client that knows nothing of batches."""
        key, value = self._chance.choice(KEYS), self._value()
        await self._write(DeleteRange(key) if value is None else Put(key, value))

    async def _sweep(self) -> None:
        await self._run(sweep(1))

    async def _read(self) -> None:
        """The state at a revision that no batch splits."""
        epoch, checker, span = self._world.epoch, self._checker, SPAN

        async def read(node: Any) -> tuple[int, Any]:
            now = await node.key_values.range(Range(b"none"), caller=UNRESTRICTED)
            windows = await Scans(node.key_values).windows(*span)
            revision = cuts.cut_before(now.revision, windows)
            return revision, await node.key_values.range(Range(*span, revision=revision), caller=UNRESTRICTED)

        revision, found = await self._ask(read)
        if self._world.epoch == epoch:
            checker.read(revision, {kv.key: kv.value for kv in found.kvs})
            await self._ask(lambda node: Scans(node.key_values).pin(*span, "slices", revision, PIN_MS))
            self._cut = revision

    async def _slice(self) -> None:
        """The state at an earlier cut, from the vault of a member, which is at a later revision by then."""
        revision, epoch, checker = self._cut, self._world.epoch, self._checker

        def seen(vault: int) -> None:
            if vault > revision:
                self._world.count("large batch: undone in a slice")

        async def read(node: Any) -> dict[bytes, bytes]:
            return slice_at(node, SPAN, revision, seen)

        if revision:
            rows = await self._ask(read)
            if self._world.epoch == epoch:
                checker.read(revision, rows, by="a slice of a vault")

    @property
    def _checker(self) -> LargeBatches:
        return next(each for each in self._world.checkers if isinstance(each, LargeBatches))
