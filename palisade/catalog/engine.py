"""Executes procedures: reads rows, lets the pure modules compute the writes, writes them, and waits for PROCEED.

`run` resumes a procedure after any interruption, on any node, from the record alone. No state is kept between two
steps. Every transaction compares the revision of the record that the decision was based on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from palisade.catalog import keys, locks
from palisade.catalog.errors import (
    Busy,
    CatalogError,
    DamagedRow,
    NoSuchProcedure,
    NotCancellable,
    ProcedureDiffers,
    RolledBack,
)
from palisade.catalog.operations.operation_kind import Drawn, OperationKind
from palisade.catalog.plan import READ_MAX, CatalogPlan, CatalogRows, Changes, NeedsRange, NeedsRow
from palisade.catalog.ports import CatalogStore, ReleaseRefused
from palisade.catalog.procedure_record import from_bytes, to_bytes
from palisade.catalog.procedures import (
    Procedure,
    ProcedureActor,
    ProcedureState,
    check_cancellable,
    destroyed,
    failed,
    finished,
    is_same,
    prepared,
    released,
    rolled_back,
    submitted,
)
from palisade.metastore.errors import QuotaExceeded
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn, prefix_end
from palisade.metastore.results import KeyValue, RangeResult

BATCH_ROWS = 256
"""Rows of data removed per transaction: few enough not to delay a heartbeat."""
OPEN_MAX = 500
KEPT = 1000
"""Number of ended procedures that are kept, for display and to recognize repeated requests."""
ROUNDS_MAX = 1000
"""Reads for one plan."""


class ProcedurePending(Exception):
    """PROCEED was refused for a change that is never rolled back (F8). It stays pending; retry later."""


class InUse(NotCancellable):
    """The object that the procedure created already has data, so the procedure can only go forward."""


class ProcedureEngine:
    """`node` is written into the history. Any number of nodes can run engines concurrently."""

    def __init__(self, store: CatalogStore, node: str) -> None:
        self._store = store
        self._node = node

    # Submitting.

    async def submit(self, id_: str, kind: OperationKind, request: Mapping[str, Any], object_id: str) -> Procedure:
        """Record the procedure and acquire its locks. Repeating the same request returns the existing procedure.

        Raises Busy (naming the procedure that holds a lock), ProcedureDiffers.
        """
        wanted = locks.least(kind.locks(request))
        first = submitted(id_, kind, request, object_id, wanted, self._actor())
        known = await self._known(first)
        if known is not None:
            return known
        await self._check_room()
        free = (locks.absent(first.key), *locks.are_free(wanted))
        result = await self._store.txn(Txn(free, (Put(first.key, to_bytes(first)), *locks.take(wanted, id_))))
        if result.succeeded:
            return replace(first, revision=result.revision)
        known = await self._known(first)
        if known is not None:
            return known
        raise Busy(f"{', '.join(wanted)}: {await self._holder(wanted)}; retry after it has ended")

    async def _known(self, first: Procedure) -> Procedure | None:
        try:
            found = await self.read(first.id)
        except NoSuchProcedure:
            return None
        if not is_same(found, first.kind, first.request):
            raise ProcedureDiffers(f"procedure {first.id} is a {found.kind} with other fields: use another ID")
        return found

    async def _check_room(self) -> None:
        found = await self._store.range(Range(keys.LOCKS, prefix_end(keys.LOCKS), count_only=True))
        if found.count >= OPEN_MAX:
            raise Busy(f"{found.count} objects are locked by procedures, the limit is {OPEN_MAX}: wait for some to end")

    async def _holder(self, wanted: Iterable[str]) -> str:
        for lock in wanted:
            key = locks.lock_key(lock)
            for read in (Range(key, prefix_end(key), limit=1), *map(Range, locks.keys_above(lock))):
                found = await self._store.range(read)
                if found.kvs:
                    return f"locked by procedure {found.kvs[0].value.decode('utf-8', 'replace')}"
        return "was locked by another procedure"

    # Reading.

    async def read(self, id_: str) -> Procedure:
        """Linearizable. Raises NoSuchProcedure, DamagedRow."""
        key = keys.PROCEDURES + id_.encode()
        row = first_of(await self._store.range(Range(key)))
        if row is None:
            raise NoSuchProcedure(f"there is no procedure {id_}: it was never submitted, or was pruned after its end")
        return from_bytes(key, row.value, row.mod_revision)

    async def open_ids(self) -> list[str]:
        """IDs of the procedures that have not ended, from their locks."""
        found = await self._store.range(Range(keys.LOCKS, prefix_end(keys.LOCKS)))
        return list(dict.fromkeys(row.value.decode("utf-8", "replace") for row in found.kvs))

    async def known(self) -> list[Procedure]:
        """All procedures, oldest first; unreadable records are skipped."""
        found = []
        for row in (await self._store.range(Range(keys.PROCEDURES, prefix_end(keys.PROCEDURES)))).kvs:
            try:
                found.append(from_bytes(row.key, row.value, row.mod_revision))
            except DamagedRow:
                continue
        return sorted(found, key=lambda each: (each.done[0].at_ms, each.revision))

    # Cleanup.

    async def prune(self) -> int:
        """Delete the oldest ended procedures beyond KEPT. Returns their number."""
        read = Range(keys.PROCEDURES, prefix_end(keys.PROCEDURES), count_only=True)
        if (await self._store.range(read)).count <= KEPT:
            return 0
        too_old = [each for each in await self.known() if each.ended][:-KEPT]
        for begin in range(0, len(too_old), BATCH_ROWS):
            batch = too_old[begin : begin + BATCH_ROWS]
            unchanged = tuple(is_at(each.key, each.revision) for each in batch)
            await self._store.txn(Txn(unchanged, tuple(DeleteRange(each.key) for each in batch)))
        return len(too_old)

    async def drop_orphans(self, id_: str) -> bool:
        """Release the locks of a procedure whose record was deleted by hand. Whether there were any."""
        found = (await self._store.range(Range(keys.LOCKS, prefix_end(keys.LOCKS)))).kvs
        mine = [row for row in found if row.value.decode("utf-8", "replace") == id_]
        unchanged = [is_at(row.key, row.mod_revision) for row in mine]
        request = Txn(
            (locks.absent(keys.PROCEDURES + id_.encode()), *unchanged), tuple(DeleteRange(row.key) for row in mine)
        )
        return bool(mine) and (await self._store.txn(request)).succeeded

    # Running.

    async def run(self, id_: str) -> Procedure:
        """Run the procedure to its end. Raises ProcedurePending, NoSuchProcedure, DamagedRow and the store's errors."""
        procedure = await self.read(id_)
        while not procedure.ended:
            await self._advance(procedure)
            procedure = await self.read(id_)
        return procedure

    async def cancel(self, id_: str) -> Procedure:
        """Roll the procedure back, if that is still possible. Raises NotCancellable, NoSuchProcedure."""
        why = RolledBack("the procedure was cancelled")
        while True:
            procedure = await self.read(id_)
            check_cancellable(procedure)
            if procedure.state is ProcedureState.SUBMITTED:
                done = await self._end(procedure, failed(procedure, why, self._actor()), {})
            else:
                done = await self._roll_back(procedure, why)
            if done:
                return await self.read(id_)

    async def _advance(self, procedure: Procedure) -> bool:
        """Execute one step. Whether it was written; False if the record has changed meanwhile."""
        if procedure.state is ProcedureState.SUBMITTED:
            return await self._prepare(procedure)
        if procedure.state is ProcedureState.PREPARED:
            return await self._release(procedure)
        return await self._destroy(procedure)

    async def _prepare(self, procedure: Procedure) -> bool:
        rows = CatalogRows()
        try:
            plan = await self._plan(procedure, rows)
            before = await self._rows_before(plan, rows)
            after = prepared(procedure, plan, before, self._actor())
            record = to_bytes(after)
        except CatalogError as error:
            return await self._end(procedure, failed(procedure, error, self._actor()), {})
        unchanged = [is_at(key, row.mod_revision if row else 0) for key, row in rows.found.items()]
        return await self._write(procedure, [*writes(plan.prepare), Put(procedure.key, record)], unchanged)

    async def _plan(self, procedure: Procedure, rows: CatalogRows) -> CatalogPlan:
        """Raises CatalogError."""
        kind, drawn = procedure.operation, Drawn(procedure.id, procedure.object_id)
        for _ in range(ROUNDS_MAX):
            try:
                return kind.plan(kind.checked(dict(procedure.request)), rows, drawn)
            except NeedsRow as need:
                rows.found[need.key] = first_of(await self._store.range(Range(need.key)))
            except NeedsRange as need:
                rows.ranges[need.prefix] = await self._below(need.prefix)
        raise CatalogError(f"procedure {procedure.id} needs more than {ROUNDS_MAX} reads: name a smaller part")

    async def _below(self, prefix: bytes) -> tuple[KeyValue, ...]:
        found = await self._store.range(Range(prefix, prefix_end(prefix), limit=READ_MAX + 1, exact_count=False))
        if len(found.kvs) > READ_MAX:
            raise CatalogError(f"there are more than {READ_MAX} rows below {prefix.decode()}: name a smaller part")
        return found.kvs

    async def _rows_before(self, plan: CatalogPlan, rows: CatalogRows) -> Changes:
        """The rows that the plan changes. Those read in a range are also compared by the transaction from now on."""
        ranged = {row.key: row for found in rows.ranges.values() for row in found}
        for key in plan.prepare:
            if key not in rows.found:
                rows.found[key] = ranged.get(key) or first_of(await self._store.range(Range(key)))
        return {key: row.value if (row := rows.found[key]) else None for key in plan.prepare}

    async def _release(self, procedure: Procedure) -> bool:
        try:
            await self._store.released(procedure.revision)
        except ReleaseRefused as refused:
            if procedure.operation.keeps:
                raise ProcedurePending(f"procedure {procedure.id} is waiting for its release: {refused}") from refused
            try:
                return await self._roll_back(procedure, RolledBack(f"not released: {refused}"))
            except InUse as used:
                raise ProcedurePending(f"{used}; waiting for its release: {refused}") from used
        after = released(procedure, self._actor())
        if after.ended:
            return await self._end(procedure, after, procedure.finish)
        return await self._write(procedure, [Put(procedure.key, to_bytes(after))])

    async def _roll_back(self, procedure: Procedure, why: RolledBack) -> bool:
        """Raises InUse."""
        after = rolled_back(procedure, why, self._actor())
        if await self._end(procedure, after, procedure.undo, are_empty(procedure.made)):
            return True
        if (await self.read(procedure.id)).revision == procedure.revision:
            raise InUse(f"procedure {procedure.id} cannot be rolled back: {procedure.made[0]} already has data")
        return False

    async def _destroy(self, procedure: Procedure) -> bool:
        """Remove one batch, or end the procedure. The final transaction compares that every prefix is empty.

        A store over its quota rejects the record but accepts deletes, so the batch is then written without the record.
        """
        for gone, prefix in enumerate(procedure.destroy[procedure.gone :], procedure.gone):
            start = prefix.encode()
            read = Range(start, prefix_end(start), limit=BATCH_ROWS, keys_only=True, exact_count=False)
            found = (await self._store.range(read)).kvs
            if found:
                after = destroyed(procedure, gone, len(found), self._actor())
                removal = DeleteRange(found[0].key, found[-1].key + b"\0")
                try:
                    return await self._write(procedure, [removal, Put(procedure.key, to_bytes(after))])
                except QuotaExceeded:
                    return await self._write(procedure, [removal])
        after = finished(procedure, self._actor())
        if await self._end(procedure, after, procedure.finish, are_empty(procedure.destroy)):
            return True
        again = destroyed(procedure, 0, 0, self._actor())
        return await self._write(procedure, [Put(procedure.key, to_bytes(again))])

    async def _end(
        self, before: Procedure, after: Procedure, changes: Changes, compare: Iterable[Compare] = ()
    ) -> bool:
        last = [*writes(changes), *locks.give_back(before.locks), Put(after.key, to_bytes(after))]
        return await self._write(before, last, compare)

    async def _write(
        self, seen: Procedure, operations: Iterable[Put | DeleteRange], compare: Iterable[Compare] = ()
    ) -> bool:
        request = Txn((is_at(seen.key, seen.revision), *compare), tuple(operations))
        return (await self._store.txn(request)).succeeded

    def _actor(self) -> ProcedureActor:
        return ProcedureActor(self._node, self._store.now_ms())


def is_at(key: bytes, revision: int) -> Compare:
    """True while the row is unchanged. `revision`: 0 for an absent row."""
    return Compare(key, CompareTarget.MOD, CompareResult.EQUAL, revision)


def are_empty(prefixes: Iterable[str]) -> list[Compare]:
    return [locks.absent(prefix.encode(), prefix_end(prefix.encode())) for prefix in prefixes]


def writes(changes: Changes) -> list[Put | DeleteRange]:
    return [DeleteRange(key) if value is None else Put(key, value) for key, value in changes.items()]


def first_of(found: RangeResult) -> KeyValue | None:
    return found.kvs[0] if found.kvs else None
