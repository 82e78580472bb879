"""The catalog as the APIs use it, at any member: begin an operation, wait for its end, read objects.

An operation is recorded by a transaction like any other write and executed by the leader; callers that wait watch the
record. The response is sent when the end is released: from then on no node serves an older state (or it serves
nothing). If the caller's time runs out first, the response is the procedure in its current state, never an error for an
operation that has begun: its writes may already be effective, above all a REVOKE (F8).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from palisade.base.errors import by_code
from palisade.catalog import keys
from palisade.catalog.catalog_json import procedure_view
from palisade.catalog.collections import Collection, collection_named, dropped_databases, is_hidden
from palisade.catalog.engine import ProcedureEngine
from palisade.catalog.errors import BadField, Busy, CatalogError, NotThere
from palisade.catalog.operations.all import kind_named
from palisade.catalog.passwords import SALT_BYTES, sealed
from palisade.catalog.ports import ReleaseRefused
from palisade.catalog.procedures import ID_MAX, Procedure, ProcedureState
from palisade.catalog.row_format import shown
from palisade.metastore.requests import Range, WatchRequest, prefix_end
from palisade.metastore.results import KeyValue
from palisade.raftgroup.errors import OutcomeUnknown, RaftError
from palisade.service.callers import THIS_NODE
from palisade.service.catalog_store import AT_ONCE, CatalogReleases, NodeStore
from palisade.service.key_values import KeyValues
from palisade.service.procedure_runner import Runner

log = logging.getLogger(__name__)

ID = re.compile(rf"[A-Za-z0-9_.-]{{1,{ID_MAX}}}")
BUSY_S = 0.1
LOOK_S = 1.0
WAIT_MAX_S = 300.0
LIMIT = 1000
SEALING_MAX = 2
UNKNOWN = "The list of procedures shows whether procedure {0} was begun; the same id never begins it twice"


@dataclass(frozen=True, slots=True)
class CatalogOutcome:
    """A procedure, and whether its end is released to every node."""

    procedure: Procedure
    released: bool

    @property
    def settled(self) -> bool:
        return self.procedure.ended and self.released


class Catalog:
    """`node`: the id of this node. `releases`: by default every commit is a release."""

    def __init__(self, service: KeyValues, node: str, releases: CatalogReleases = AT_ONCE) -> None:
        self._service = service
        self.releases = releases
        self._store = NodeStore(service, self.releases)
        self._engine = ProcedureEngine(self._store, node)
        self.runner = Runner(service, self._engine)
        self._sealing = asyncio.Semaphore(SEALING_MAX)

    # Operations.

    async def do(
        self, kind_name: object, given: Any, id_: object = None, wait_s: float | None = None
    ) -> CatalogOutcome:
        """Begin an operation, and wait for its end at most `wait_s` (0: not at all).

        Raises BadField; the error of the operation if it failed; Busy if another operation works on the object for
        longer than that.
        """
        kind = kind_named(kind_name)
        request = kind.checked(given)
        own_id = self._checked_id(id_)
        if kind.secret:
            request[kind.secret] = await self._sealed(request[kind.secret])
        object_id = secrets.token_hex(8)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._wait_s(wait_s)
        while True:
            try:
                begun = await self._engine.submit(own_id, kind, request, object_id)
                break
            except Busy:
                if loop.time() + BUSY_S > until:
                    raise
                await asyncio.sleep(BUSY_S)
            except OutcomeUnknown as error:
                raise OutcomeUnknown(f"{error}. {UNKNOWN.format(own_id)}") from error
        try:
            return await self.wait(own_id, max(0.0, until - loop.time()))
        except RaftError as error:
            log.info("procedure begun, its state cannot be read: id=%s error=%s", own_id, error)
            return CatalogOutcome(begun, False)

    def _checked_id(self, id_: object) -> str:
        if id_ is None or id_ == "":
            return secrets.token_hex(8)
        if not isinstance(id_, str) or not ID.fullmatch(id_):
            raise BadField(f"procedure: invalid id {shown(id_)}: use 1 to {ID_MAX} characters of A-Z a-z 0-9 _ . -")
        return id_

    async def _sealed(self, password: object) -> dict[str, Any]:
        """In a thread, since hashing is slow on purpose. Few at a time: each takes 16 MiB."""
        if not isinstance(password, str):
            raise BadField("password: must be a string")
        async with self._sealing:
            return await asyncio.to_thread(sealed, password, secrets.token_bytes(SALT_BYTES))

    def _wait_s(self, wait_s: float | None) -> float:
        if wait_s is None:
            return self._service.deadline_s
        if not 0 <= wait_s <= WAIT_MAX_S:
            raise BadField(f"wait_s: {wait_s} is not between 0 and {WAIT_MAX_S:g} seconds")
        return wait_s

    async def wait(self, id_: str, wait_s: float | None = None) -> CatalogOutcome:
        """Until its end is released, or the time is over. Raises NoSuchProcedure, and the error of the operation if it
        failed."""
        procedure, released = await self._released(id_, self._wait_s(wait_s))
        failed = procedure.failed
        if failed is not None:
            raise by_code(CatalogError).get(failed.code, CatalogError)(failed.text)
        return CatalogOutcome(procedure, released)

    async def _released(self, id_: str, wait_s: float) -> tuple[Procedure, bool]:
        """The procedure, and whether it has ended and its end is released."""
        ended: Procedure | None = None
        with contextlib.suppress(TimeoutError, ReleaseRefused):
            async with asyncio.timeout(wait_s):
                ended = await self._ended(id_)
                await self.releases.released(ended.revision)
                return ended, True
        return ended or await self._engine.read(id_), False

    async def _ended(self, id_: str) -> Procedure:
        async with self._changes(keys.PROCEDURES + id_.encode()) as next_change:
            while not (procedure := await self._engine.read(id_)).ended:
                await next_change()
            return procedure

    @contextlib.asynccontextmanager
    async def _changes(self, key: bytes) -> AsyncIterator[Any]:
        """Changes of a key from now on. It also yields at intervals without a change, so that the key is read again
        if a compaction has overtaken the watch."""
        watching = self._service.watch(WatchRequest(key), progress_s=LOOK_S)
        try:
            yield watching.next
        finally:
            watching.close()

    # Procedures.

    async def procedures(self, *, open_only: bool = False, limit: int = 100) -> list[dict[str, Any]]:
        """Newest first."""
        found = [each for each in await self._engine.known() if not (open_only and each.ended)]
        return [self.view(each) for each in reversed(found[-limit:])] if limit > 0 else []

    async def procedure(self, id_: str, wait_s: float = 0.0) -> dict[str, Any]:
        """In its current state, or with `wait_s` once it has ended and is released. Raises NoSuchProcedure."""
        procedure, released = await self._released(id_, self._wait_s(wait_s))
        return self.view(procedure, released=released)

    async def cancel(self, id_: str) -> dict[str, Any]:
        """Raises NotCancellable, NoSuchProcedure."""
        return self.view(await self._engine.cancel(id_))

    def view(self, procedure: Procedure, *, released: bool = False) -> dict[str, Any]:
        waiting = self.releases.waiting_for(procedure.revision) if procedure.state is ProcedureState.PREPARED else []
        return procedure_view(procedure, waiting, released=released)

    # Objects.

    async def objects(self, name: object, *, below: str = "", after: str = "", limit: int = LIMIT) -> dict[str, Any]:
        """Objects of one collection, in order: at and below a path, after a name. Each is read linearizably."""
        collection = collection_named(name)
        if not 1 <= limit <= LIMIT:
            raise BadField(f"limit: {limit} is not between 1 and {LIMIT}")
        start, end = interval(collection, below, after)
        gone = await self._gone(collection)
        found = await self._service.range(Range(start, end, limit=limit, exact_count=False), caller=THIS_NODE)
        shapes = [collection.shape_or_damage(row) for row in found.kvs if is_within(collection, row, below)]
        return {
            "revision": found.revision,
            "more": found.more,
            "last": keys.path_of(collection.place, found.kvs[-1].key) if found.kvs else None,
            "objects": [shape for shape in shapes if not is_hidden(shape, gone, collection)],
        }

    async def object(self, name: object, path: str) -> dict[str, Any]:
        """Raises NotThere, DamagedRow."""
        collection = collection_named(name)
        gone = await self._gone(collection)
        found = await self._service.range(Range(keys.at(collection.place, path)), caller=THIS_NODE)
        if found.kvs:
            shape = collection.shape(found.kvs[0])
            if not is_hidden(shape, gone, collection):
                return shape
        raise NotThere(f"there is no {path[:200]!r} among the {collection.name}")

    async def _gone(self, collection: Collection) -> frozenset[str]:
        """The databases that are being dropped. Read before their content, and released like it: an object in the
        result existed at one of the two moments, and a hidden one did not."""
        if not collection.inside:
            return frozenset()
        found = await self._service.range(Range(keys.DATABASES, prefix_end(keys.DATABASES)), caller=THIS_NODE)
        return dropped_databases(found.kvs)


def interval(collection: Collection, below: str, after: str) -> tuple[bytes, bytes]:
    """The key interval of the requested objects."""
    place = collection.place
    start, end = place, prefix_end(place)
    if below:
        start, end = keys.at(place, below), prefix_end(keys.below(place, below))
    if after:
        start = max(start, keys.at(place, after) + b"\0")
    return start, max(end, start)


def is_within(collection: Collection, row: KeyValue, below: str) -> bool:
    """Whether the row is at or below the path. Keys of other paths can lie between: a-b sorts between a and a/b."""
    path = keys.path_of(collection.place, row.key)
    return not below or path == below or path.startswith(f"{below}.")
