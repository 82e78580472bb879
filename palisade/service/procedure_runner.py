"""Executes procedures at the leader: new ones, and those that an earlier leader has left unfinished (F9).

Every unfinished procedure holds a lock, so the locks list the open ones, and a new lock announces a new procedure. A
node that loses leadership drops its work: the next leader continues from the records. Two nodes that act as leader at
the same time do no harm (`palisade/catalog/procedures.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter

from palisade.catalog import keys
from palisade.catalog.engine import ProcedureEngine, ProcedurePending
from palisade.catalog.errors import DamagedRow, NoSuchProcedure
from palisade.catalog.procedures import ProcedureState
from palisade.metastore.errors import Compacted, MetastoreError
from palisade.metastore.requests import WatchRequest, prefix_end
from palisade.raftgroup.errors import NodeFailed, RaftError
from palisade.service.key_values import KeyValues
from palisade.service.watches import ProgressReport

log = logging.getLogger(__name__)

LOOK_S = 0.1
PRUNE_S = 60.0
RETRY_MIN_S = 0.05
RETRY_MAX_S = 5.0


class Runner:
    """`run` until cancelled. `working`: ids of the procedures in execution. `ended`: number of procedures that ended
    here, by end."""

    def __init__(self, service: KeyValues, engine: ProcedureEngine) -> None:
        self._service = service
        self._engine = engine
        self.ended: Counter[ProcedureState] = Counter()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed: asyncio.Future[None] | None = None

    @property
    def working(self) -> frozenset[str]:
        return frozenset(self._tasks)

    async def run(self) -> None:
        """Raises NodeFailed when the node has stopped itself."""
        self._failed = asyncio.get_running_loop().create_future()
        while True:
            await self._service.group.until_leads()
            await asyncio.sleep(LOOK_S)
            if not self._service.group.leads:
                continue
            try:
                await self._lead()
            except NodeFailed:
                raise
            except (RaftError, Compacted) as error:
                log.debug("procedures cannot be read, retrying: error=%s", error)
            finally:
                await self._drop()

    async def _lead(self) -> None:
        """While this node leads, in one term. Open procedures are looked up once; then a watch announces new ones."""
        await self._service.barrier()
        request = WatchRequest(keys.LOCKS, prefix_end(keys.LOCKS), filters=frozenset({"delete"}))
        watching = self._service.watch(request, progress_s=LOOK_S)
        loop = asyncio.get_running_loop()
        prune_at = loop.time() + PRUNE_S
        term = self._service.group.term
        try:
            for id_ in await self._engine.open_ids():
                self._begin(id_)
            while self._service.group.leads and self._service.group.term == term:
                self._check_failed()
                news = await watching.next()
                if not isinstance(news, ProgressReport):
                    for event in (event for revision in news for event in revision.events):
                        self._begin(event.kv.value.decode("utf-8", "replace"))
                if loop.time() > prune_at:
                    prune_at = loop.time() + PRUNE_S
                    await self._engine.prune()
        finally:
            watching.close()

    def _check_failed(self) -> None:
        if self._failed is not None and self._failed.done():
            self._failed.result()

    def _begin(self, id_: str) -> None:
        if id_ not in self._tasks:
            task = self._tasks[id_] = asyncio.create_task(self._carry(id_), name=f"procedure {id_}")
            task.add_done_callback(lambda _: self._tasks.pop(id_, None))

    async def _carry(self, id_: str) -> None:
        """Until it ends, however often it has to be retried. Unexpected errors are logged and retried as well."""
        retry_s = RETRY_MIN_S
        while True:
            try:
                done = await self._engine.run(id_)
                self.ended[done.state] += 1
                log.info("procedure ended: id=%s kind=%s state=%s", id_, done.kind, done.state.value)
                return
            except (NoSuchProcedure, DamagedRow) as error:
                log.warning("%s", error)
                with contextlib.suppress(RaftError):
                    await self._engine.drop_orphans(id_)
                return
            except NodeFailed as error:
                if self._failed is not None and not self._failed.done():
                    self._failed.set_exception(error)
                return
            except (RaftError, ProcedurePending) as error:
                log.debug("procedure interrupted, retrying: id=%s error=%s", id_, error)
            except MetastoreError as error:
                log.warning("procedure interrupted, retrying: id=%s error=%s", id_, error)
            except Exception:
                log.exception("procedure interrupted by an unexpected error, retrying: id=%s", id_)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_MAX_S)

    async def _drop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
