"""Faults of nodes that respond late or never, each on one path, or that fail and continue; all else is correct."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from palisade.api.http.fast_path import HttpConnection
from palisade.catalog.engine import ProcedureEngine
from palisade.client.client import Client
from palisade.client.session import StreamSession
from palisade.client.watch import Watch
from palisade.fencing.holder_state import Holder
from palisade.metastore.errors import Compacted
from palisade.metastore.requests import Range
from palisade.raftgroup.errors import Unavailable
from palisade.raftgroup.group import Group
from palisade.recovery.lifecycle import ComponentFailed, Lifecycle
from palisade.service.fenced_reads import FencedReads
from palisade.service.key_values import KeyValues
from palisade.service.watches import Watching
from palisade.vault.errors import Fenced
from palisade.vault.reader import VaultReader
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import Patch, Stage, caught_by, with_faults
from tests.sim.world import Settings

WITH_HTTP = Stage(settings=Settings(http=True))
MEMBER_PAUSES_LATE = with_faults(Fault(14.0, Kind.PAUSE, "n2", "n1", 4.5), seed=14)
"""For longer than its lease, so that it has to recover, until shortly before the faults stop."""


@caught_by("liveness", says="linearizable read at n")
def members_that_refuse_reads(patch: Patch) -> None:
    """All that need a barrier, if the member does not lead."""
    _refuses(patch, lambda service, request: not (request.serializable or service.group.leads))


@caught_by("liveness", says="serializable read at n1")
def serializable_reads_that_are_refused(patch: Patch) -> None:
    _refuses(patch, lambda service, request: request.serializable)


@caught_by("liveness", says="read of the past at n1")
def past_reads_that_are_compacted(patch: Patch) -> None:
    _refuses(patch, lambda service, request: request.revision > 0, Compacted("all that was is gone"))


def _refuses(patch: Patch, which: Any, error: Exception | None = None) -> None:
    read = KeyValues.range

    async def refused(self: KeyValues, request: Range, **more: Any) -> Any:
        if which(self, request):
            raise error or Unavailable("another member has to be asked")
        return await read(self, request, **more)

    patch.setattr(KeyValues, "range", refused)


@caught_by("liveness", says="there is nothing that answers: write at n")
def members_that_refuse_writes(patch: Patch) -> None:
    """At members that do not lead, for keys of the strict region."""
    write = KeyValues.write

    async def refused(self: KeyValues, request: Any, *rest: Any, **more: Any) -> Any:
        if getattr(request, "key", b"").startswith(b"s/") and not self.group.leads:
            raise Unavailable("another member has to be asked")
        return await write(self, request, *rest, **more)

    patch.setattr(KeyValues, "write", refused)


@caught_by("liveness", says="fenced read at f1")
def fenced_reads_that_are_refused(patch: Patch) -> None:
    patch.setattr(FencedReads, "read", _fenced)


@caught_by("liveness", says="vault reader at f1")
def readers_that_are_fenced_for_ever(patch: Patch) -> None:
    for name in ("get", "get_item", "read", "prefix", "range"):
        patch.setattr(VaultReader, name, _fenced)
    for name in ("get_item_async", "prefix_async", "range_async"):
        patch.setattr(VaultReader, name, _fenced_async)
    patch.setattr(VaultReader, "at_once", lambda self, key: None)


def _fenced(self: Any, *asked: Any) -> Any:
    raise Fenced("its lease has run out")


async def _fenced_async(self: Any, *asked: Any) -> Any:
    raise Fenced("its lease has run out")


@caught_by("liveness", says="stream put at n1")
def stream_calls_that_never_answer(patch: Patch) -> None:
    for name in ("put", "delete", "txn", "range"):
        patch.setattr(Client, name, _never)


@caught_by("liveness", says="clients have not come to an end: streamer")
def stream_clients_that_never_close(patch: Patch) -> None:
    patch.setattr(StreamSession, "close", _never)


@caught_by("liveness", says="watch over the stream at n1")
def stream_watches_that_send_nothing(patch: Patch) -> None:
    patch.setattr(Watch, "__anext__", _never)


@caught_by("liveness", says="watch at n1")
def watches_that_send_nothing(patch: Patch) -> None:
    """Only those of clients behind the ports: the others poll by themselves."""
    patch.setattr(Watching, "next", _never)


async def _never(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


@caught_by("liveness", says="HTTP write at n1", on=WITH_HTTP)
def http_that_hangs_up(patch: Patch) -> None:
    patch.setattr(HttpConnection, "data_received", lambda self, data: self.abort())


@caught_by("liveness", says="some do not serve: ", on=MEMBER_PAUSES_LATE)
def recoveries_that_wait_for_long(patch: Patch) -> None:
    """Forty seconds before a node recovers a second time."""
    begin = Holder.begin_recovery

    def waits(self: Holder, now: float) -> None:
        begin(self, now)
        self._retry_at = now + 40.0

    patch.setattr(Holder, "begin_recovery", waits)


@caught_by("no errors logged")
def procedures_that_stumble_once(patch: Patch) -> None:
    """The runner logs the error, and retries."""
    run, stumbled = ProcedureEngine.run, set[str]()

    async def stumbles(self: ProcedureEngine, id_: str) -> Any:
        if id_ not in stumbled:
            stumbled.add(id_)
            raise ZeroDivisionError(id_)
        return await run(self, id_)

    patch.setattr(ProcedureEngine, "run", stumbles)


@caught_by("no errors logged", says="its error was never retrieved")
def tasks_that_fail_and_are_kept(patch: Patch) -> None:
    start = Group.start

    async def fails() -> None:
        raise ZeroDivisionError

    async def started(self: Group) -> None:
        await start(self)
        self.kept = asyncio.get_running_loop().create_task(fails())  # type: ignore[attr-defined]

    patch.setattr(Group, "start", started)


@caught_by("stays up", on=Stage("disks", 4), says="says nothing")
def nodes_that_end_without_a_reason(patch: Patch) -> None:
    """A component has failed."""
    wait = Lifecycle.wait

    async def waits(self: Lifecycle) -> None:
        with contextlib.suppress(ComponentFailed):
            await wait(self)

    patch.setattr(Lifecycle, "wait", waits)
