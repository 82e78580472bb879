"""What clients must get from every node once all faults are removed: a response on each path, and a watched event.

That every node serves and has the same state is what nodes report themselves. Thus each path is used at each node:
writes, linearizable reads, local reads (`serializable`) and reads of the past, fenced reads by the API and beside the
node, the calls of the stream port, HTTP if it is there, and watches of both kinds, which must report a later write.
Each is retried until it ends with Ok; `left` names those that have not, with their last result.

They are recorded like all client operations, so their results are judged as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.client.client import Client as StreamClient
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from palisade.service.callers import UNRESTRICTED
from palisade.vault.reader import VaultReader
from tests.sim.clients import Client, way_to
from tests.sim.http_clients import HttpClient
from tests.sim.node import Host
from tests.sim.readers import Way, read_beside
from tests.sim.seen import PROBER, Ok, Outcome, Path, Refused, Request, Why
from tests.sim.streaming import Streamer, StreamWatcher, connected
from tests.sim.watching import Watcher
from tests.sim.workload import Workload

KEY = b"s/probe"
PAUSE_S = 0.2
"""Before a failed probe is repeated."""
NOT_ASKED, NO_ANSWER = "not asked yet", "no answer"

Act = Callable[[Host], Awaitable[Outcome]]
Probe = tuple[Act, Host]


class Probes:
    """Of one world, beside the clients of `workload`, which may continue or not."""

    def __init__(self, workload: Workload) -> None:
        self._workload, self._world = workload, workload.world
        self._client = Client(self._world, PROBER + "'" * self._world.epoch)
        self._streams: dict[str, StreamClient] = {}
        self._start = self._world.revision + 1
        """Watches begin with new changes."""
        self._written = 0
        """By one of these probes, as far as it is known."""
        self._left: dict[str, Outcome | str] = {}
        self._all = asyncio.Event()

    @property
    def answered(self) -> bool:
        return not self._left

    def __str__(self) -> str:
        """The unfinished probes."""
        return "; ".join(f"{what} ({_shown(heard)})" for what, heard in self._left.items() if heard != NOT_ASKED)

    def start(self) -> None:
        """Watches all at once, and at each node one request after the other: simultaneous requests cost the judge of
        the history more than the nodes."""
        at = self._world.hosts.values()
        watches = {f"{name} at {host.id}": (act, host) for host in at for name, act in self._watches(host).items()}
        asked = [{f"{name} at {host.id}": (act, host) for name, act in self._requests(host).items()} for host in at]
        self._left = dict.fromkeys((what for probes in (watches, *asked) for what in probes), NOT_ASKED)
        for host in self._world.members:
            self._workload.run(self._client.process, self._connected(host))
        for probes in (*({what: probe} for what, probe in watches.items()), *asked):
            self._workload.run(self._client.process, self._until_ok(probes))

    def _watches(self, host: Host) -> dict[str, Act]:
        return {} if host.follows else {"watch": self._watch, "watch over the stream": self._stream_watch}

    def _requests(self, host: Host) -> dict[str, Act]:
        at_members = {
            "write": self._write,
            "linearizable read": self._asks(Range(KEY)),
            "serializable read": self._asks(Range(KEY, serializable=True)),
            "read of the past": self._past,
            "stream put": self._stream(lambda: Put(KEY, self._value())),
            "stream delete": self._stream(lambda: DeleteRange(KEY)),
            "stream transaction": self._stream(self._transaction),
            "stream range": self._stream(lambda: Range(KEY)),
        }
        everywhere = {"fenced read": self._fenced, "vault reader": self._beside}
        if self._world.settings.http:
            at_members |= {
                "HTTP write": self._http(Path.HTTP, lambda: Put(KEY, self._value())),
                "HTTP read": self._http(Path.HTTP, lambda: Range(KEY)),
            }
            everywhere |= {"fenced HTTP read": self._http(Path.FENCED_API, lambda: Range(KEY))}
        return everywhere if host.follows else at_members | everywhere

    async def _connected(self, host: Host) -> None:
        """Until every probe has succeeded."""
        async with connected(self._world, f"{self._client.name}-{host.id}", (host,)) as self._streams[host.id]:
            await self._all.wait()

    async def _until_ok(self, probes: dict[str, Probe]) -> None:
        """In turn, and again those without Ok."""
        while probes:
            for what, (act, host) in list(probes.items()):
                self._left[what] = NO_ANSWER
                outcome = await act(host)
                if isinstance(outcome, Ok):
                    del self._left[what], probes[what]
                    if not self._left:
                        self._all.set()
                else:
                    self._left[what] = outcome
            await asyncio.sleep(PAUSE_S if probes else 0)

    def _value(self) -> bytes:
        return self._workload.asking.value()

    # Behind the ports

    async def _write(self, host: Host) -> Outcome:
        request = Put(KEY, self._value())
        outcome = await self._client.ask(
            host, way_to(host), request, lambda node: node.key_values.write(request, caller=UNRESTRICTED)
        )
        if isinstance(outcome, Ok):
            self._written = max(self._written, outcome.result.revision)
        return outcome

    def _asks(self, request: Range) -> Act:
        async def ask(host: Host) -> Outcome:
            path = Path.LOCAL if request.serializable else way_to(host)
            return await self._client.ask(
                host, path, request, lambda node: node.key_values.range(request, caller=UNRESTRICTED)
            )

        return ask

    async def _past(self, host: Host) -> Outcome:
        """The latest revision: nothing compacts that."""
        return await self._asks(Range(KEY, revision=self._world.revision))(host)

    async def _watch(self, host: Host) -> Outcome:
        watcher = Watcher(self._client, lambda: not watcher.delivered, self._written or self._start)
        await watcher.watch(host)
        return _delivered(watcher.delivered)

    # Out of the vault

    async def _fenced(self, host: Host) -> Outcome:
        if not self._world.is_asked(host.vault):
            return Refused(Why.FENCED, "the vault is from before the restore")
        return await self._client.fenced(host, KEY)

    async def _beside(self, host: Host) -> Outcome:
        """By the clock of that machine, but in the process of the prober: no message is involved."""
        vault, process = host.vault, host.process
        if vault is None or process is None or not self._world.is_asked(vault):
            return Refused(Why.FENCED, "there is no vault of this history")
        reader = VaultReader.over(vault, clock_ns=lambda: int(process.now() * 1e9), wait_s=0.05)
        return await read_beside(self._world, self._client.name, host, reader, Way.ITEM_ASYNC, KEY, host.vault)

    # Over the ports

    def _stream(self, make: Callable[[], Request]) -> Act:
        streamer = Streamer(self._client, self._workload.asking, lambda: True, 0.0)

        async def ask(host: Host) -> Outcome:
            return await streamer.ask(self._streams[host.id], make())

        return ask

    def _transaction(self) -> Txn:
        present = Compare(KEY, CompareTarget.VERSION, CompareResult.GREATER, 0)
        return Txn((present,), (Put(KEY, self._value()),), (Range(KEY),))

    async def _stream_watch(self, host: Host) -> Outcome:
        watcher = StreamWatcher(self._client, lambda: not watcher.delivered, self._written or self._start)
        await watcher.live(self._streams[host.id])
        return _delivered(watcher.delivered)

    def _http(self, path: Path, make: Callable[[], Any]) -> Act:
        """On a connection of its own: no request waits for another one that gets no response."""
        http = HttpClient(self._client, self._workload.asking, lambda: True, 0.0)

        async def ask(host: Host) -> Outcome:
            if path is Path.FENCED_API and not self._world.is_asked(host.vault):
                return Refused(Why.FENCED, "the vault is from before the restore")
            return await http.ask(host, path, make(), None, 1)

        return ask


def _shown(heard: Outcome | str) -> str:
    return heard if isinstance(heard, str) else getattr(heard, "text", "")


def _delivered(times: int) -> Outcome:
    return Ok(times) if times else Refused(Why.UNAVAILABLE, "it has delivered no event")
