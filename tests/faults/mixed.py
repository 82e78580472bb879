"""Clients of every kind, through every member: their results are recorded, and judged by the checkers of the simulator.

Over HTTP and the stream they put, swap, delete, change several keys at once, and read: the latest state, the past, the
state of one node, and vaults. Some watch (`watchers.py`). One has a key that is attached to a lease. A client without a
response repeats the write with the same id at another node.

`witnesses.py` observes commits; `asking.py` creates requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from palisade.client import Client
from palisade.metastore.requests import LeaseGrant, LeaseKeepAlive, LeaseRevoke, Put, Range, RequestId
from palisade.metastore.results import RangeResult, RevisionEvents
from palisade.vault.errors import VaultError
from palisade.vault.reader import VaultReader
from tests.faults.asked_by_http import outcome_at
from tests.faults.asking import Asking, is_mixed
from tests.faults.judge import judged, woven
from tests.faults.watchers import Watcher
from tests.faults.witnesses import Witnesses
from tests.sim.clients import result_of, rows_result
from tests.sim.history import History
from tests.sim.history_file import dump
from tests.sim.outcomes import EXPECTED, outcome_of
from tests.sim.seen import Ok, Outcome, Refused, Request, Why
from tests.sim.seen import Path as Way
from tests.sim.streaming import AT, sent
from tests.support.fencing_cluster import now
from tests.support.processes import NodeProcess

PATIENCE_S = 2.0
STREAM_PATIENCE_S = 5.0
TRIES = 3
ASKED_AGAIN_S = 0.1
LEASE_S = 2
LAST_WRITES = 3
REPORT_S = 8.0
"""Time within which every watch has received all changes when no fault is left: a client closes a silent connection
after 5 s, and has another one within 2.75 s."""
LOOK_S = 0.05


class MixedClients:
    """`async with MixedClients(nodes, chance) as mixed:`; afterwards, `violations`. `name`: part of its keys, which no
    other client writes. `nodes`: members. `vaults`: nodes that serve fenced reads; None: the members."""

    def __init__(
        self,
        nodes: Sequence[NodeProcess],
        chance: Random,
        name: str = "mixed",
        *,
        pause_s: float = 0.01,
        vaults: Sequence[NodeProcess] | None = None,
    ) -> None:
        self.name = name
        self.history = History(now)
        self._nodes, self._vaults, self._pause_s = nodes, vaults or nodes, pause_s
        self._chance = Random(chance.random())
        self._newest = 1
        self._asking = Asking(name, self._chance, lambda: self._newest)
        self._witnesses = Witnesses(nodes)
        self._watchers = [
            Watcher(f"{name}-w{number}", number, prefix, nodes, self.history)
            for number, prefix in enumerate(self._asking.prefixes)
        ]
        self.reported_s: float | None = None
        """How long it took at the end until every watch had received all changes."""
        self._tasks: list[asyncio.Task[None]] = []
        self._wrong: list[str] = []

    async def __aenter__(self) -> MixedClients:
        await self._witnesses.__aenter__()
        self._newest = self._witnesses.first
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S))
        self._start(*(self._by_http(f"{self.name}-h{number}") for number in range(3)))
        self._start(*(self._of_vaults(f"{self.name}-v{number}") for number in range(3)))
        self._start(self._beside_vaults(f"{self.name}-p0"))
        self._start(*(self._by_stream(f"{self.name}-s{number}") for number in range(2)))
        self._start(*(each.run(self._witnesses.first + 1) for each in self._watchers))
        self._start(self._lease(f"{self.name}-l0"))
        return self

    def _start(self, *works: Coroutine[Any, Any, None]) -> None:
        self._tasks += map(asyncio.create_task, works)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()
        newest = newest_of(self.history)
        if not await self._witnesses.have_reported(newest, REPORT_S):
            self._wrong.append(f"no member reported all revisions up to {newest}, which clients received")
        for node, result in (await self._witnesses.finals(b"/", b"0")).items():
            self.history.final(node, self._own(result))
        await self._witnesses.__aexit__(None, None, None)
        for found in ended:
            if isinstance(found, Exception):
                raise found

    async def hear_everything(self) -> None:
        """Without faults: every member and every watching client receives, in time, all changes that are committed by
        now. Watches must receive a new change: a client that had received all before might have been disconnected."""
        for watcher in self._watchers:
            watcher.stay()
        last = await self._last_writes()
        began, newest = now(), max(newest_of(self.history), self._witnesses.newest)

        def silent() -> list[str]:
            of_watchers = [watcher.silent(revision) for watcher, revision in zip(self._watchers, last, strict=True)]
            return [*self._witnesses.silent(newest), *filter(None, of_watchers)]

        while (found := silent()) and now() < began + REPORT_S:
            await asyncio.sleep(LOOK_S)
        self._wrong += [f"{each}, {REPORT_S:g} s later" for each in found]
        self.reported_s = now() - began

    async def _last_writes(self) -> list[int]:
        """The revision of the last put in each watched range."""
        client = f"{self.name}-last"
        async with self._connected(client) as stream:
            return [await self._last_write(client, stream, watcher.prefix + b"last") for watcher in self._watchers]

    async def _last_write(self, client: str, stream: Client, key: bytes) -> int:
        revision = 0
        for _ in range(LAST_WRITES):
            value = self._asking.value()
            outcome = await self._send(client, Put(key, value), stream.put(key, value))
            if isinstance(outcome, Ok):
                revision = outcome.result.revision
            else:
                self._wrong.append(f"{key!r} can't be written where nothing is broken any more: {outcome}")
        return revision

    def counts(self) -> dict[str, int]:
        """Numbers of results, as text."""
        reported = [batch for event in self.history.events for batch in getattr(event, "batch", ())]
        done = [each for each in self.history.operations() if isinstance(each.outcome, Ok)]
        ranges = sum(is_mixed(each.request) for each in done)
        return {"mixed": len(done), "ranges": ranges, "watched": len(reported), "finals": len(self.history.finals())}

    def violations(self, file: Path) -> list[str]:
        """Violations and undecided parts. The history is in `file` then."""
        reported = self._witnesses.revisions
        history = woven(self.history, [self._own_events(reported[each]) for each in sorted(reported)])
        with file.open("w", encoding="ascii") as lines:
            lines.writelines(f"{line}\n" for line in dump(history))
        return [*self._wrong, *self._witnesses.disagreement[:5], *judged(history)]

    def _is_own(self, key: bytes) -> bool:
        return key.startswith(self._asking.prefixes)

    def _own_events(self, events: RevisionEvents) -> RevisionEvents:
        """Events of its own keys: the writes of others are not in its history."""
        return replace(events, events=tuple(each for each in events.events if self._is_own(each.kv.key)))

    def _own(self, result: RangeResult) -> RangeResult:
        kvs = tuple(kv for kv in result.kvs if self._is_own(kv.key))
        return RangeResult(result.revision, kvs, False, len(kvs))

    # Over HTTP

    async def _by_http(self, client: str) -> None:
        sequence = 0
        while True:
            sequence += 1
            request = self._asking.anything()
            rid = None if isinstance(request, Range) else RequestId(client, sequence)
            for attempt in range(1, TRIES + 1):
                way = Way.LOCAL if rid is None and getattr(request, "serializable", False) else Way.HTTP
                outcome = await self._ask(client, way, request, rid, attempt)
                if rid is None or isinstance(outcome, Ok) or getattr(outcome, "why", None) is Why.REJECTED:
                    break

    async def _of_vaults(self, client: str) -> None:
        """A client that reads from vaults alone never waits for an isolated node."""
        while True:
            await self._ask(client, Way.FENCED_API, self._asking.fenced())

    async def _ask(
        self, client: str, way: Way, request: Request, rid: RequestId | None = None, attempt: int = 1
    ) -> Outcome:
        node = self._chance.choice(self._vaults if way is Way.FENCED_API else self._nodes)
        number = self.history.begin(client, node.id, way, request, rid, attempt)
        outcome = await outcome_at(self._session, node, way, request, rid)
        return await self._record(number, request, outcome)

    async def _beside_vaults(self, client: str) -> None:
        """A process on the machine of a node, which reads its vault: also while the node has ended."""
        while True:
            node, request = self._chance.choice(self._vaults), self._asking.fenced()
            number = self.history.begin(client, node.id, Way.VAULT_READER, request)
            try:
                with VaultReader(node.data_dir / "vault") as reader:
                    outcome: Outcome = Ok(await read_from(reader, request))
            except VaultError as error:
                outcome = Refused(Why.UNAVAILABLE, str(error))
            await self._record(number, request, outcome)

    async def _record(self, number: int, request: Request, outcome: Outcome) -> Outcome:
        """And wait before the next request."""
        if isinstance(outcome, Ok) and is_mixed(request):
            outcome = Ok(self._own(outcome.result))
        self.history.end(number, outcome)
        self._asking.observe(request, outcome)
        if isinstance(outcome, Ok):
            self._newest = max(self._newest, outcome.result.revision)
        await asyncio.sleep(self._pause_s if isinstance(outcome, Ok) else ASKED_AGAIN_S)
        return outcome

    # Over the stream

    def _connected(self, client: str) -> Client:
        """To any member; the client goes to the leader by itself, and repeats requests without a response."""
        endpoints = self._chance.sample([node.stream for node in self._nodes], len(self._nodes))
        return Client(endpoints, timeout_s=STREAM_PATIENCE_S, client_id=client)

    async def _by_stream(self, client: str) -> None:
        async with self._connected(client) as stream:
            while True:
                request = self._asking.anything()
                await self._send(client, request, sent(stream, request))

    async def _send(self, client: str, request: Any, sending: Any) -> Outcome:
        way = Way.LOCAL if getattr(request, "serializable", False) else Way.STREAM
        number = self.history.begin(client, AT, way, request)
        try:
            outcome: Outcome = Ok(await sending)
        except EXPECTED as error:
            outcome = outcome_of(error)
        return await self._record(number, request, outcome)

    async def _lease(self, client: str) -> None:
        """A key whose lease is kept alive."""
        async with self._connected(client) as stream:
            while True:
                granted = await self._send(client, LeaseGrant(LEASE_S * 1000), stream.lease_grant(LEASE_S))
                if not isinstance(granted, Ok):
                    continue
                lease = granted.result.id
                key, value = self._asking.leased(), self._asking.value()
                await self._send(client, Put(key, value, lease=lease), stream.put(key, value, lease=lease))
                for _ in range(self._chance.randrange(4)):
                    await asyncio.sleep(LEASE_S / 2)
                    await self._send(client, LeaseKeepAlive(lease), stream.lease_keep_alive(lease))
                if self._chance.random() < 0.5:
                    await self._send(client, LeaseRevoke(lease), stream.lease_revoke(lease))
                await self._send(client, Range(key), stream.range(key))
                await asyncio.sleep(LEASE_S * self._chance.random())


async def read_from(reader: VaultReader, request: Range) -> RangeResult:
    """Raises VaultError."""
    if not request.range_end:
        return result_of(await reader.get_item_async(request.key))
    return rows_result(await reader.range_async(request.key, request.range_end))


def newest_of(history: History) -> int:
    """The newest revision in any result."""
    revisions = [getattr(each.result, "revision", 0) for each in history.operations()]
    revisions += [getattr(event, "revision", 0) for event in history.events]
    revisions += [batch.revision for event in history.events for batch in getattr(event, "batch", ())]
    return max(revisions, default=0)
