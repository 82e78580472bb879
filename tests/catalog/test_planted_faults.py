"""The checks above see what they are for: each fault, planted in the production code, makes one of them fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from palisade.catalog import engine as engine_module
from palisade.catalog import procedures
from palisade.catalog.engine import ProcedureEngine
from palisade.catalog.procedures import Procedure, ProcedureState
from tests.catalog import test_crashes, test_releases
from tests.support.catalog_world import CASES, DB, TABLE, TTL, USER, Violated

Check = Callable[[], Awaitable[None]]
BY_KIND = {kind: (before, (kind, request)) for before, (kind, request) in CASES}


async def crashed(kind: str) -> None:
    before, operation = BY_KIND[kind]
    for after in (False, True):
        await test_crashes.test_crash_between_any_two_steps_does_not_change_the_result(before, operation, after)


async def raced(seeds: range) -> None:
    for seed in seeds:
        await test_crashes.test_concurrent_runners_and_a_cancel_do_no_harm(seed)


async def conflicting() -> None:
    for seed in range(80):
        await test_crashes.test_operations_on_one_object_are_serialized(seed)


async def failing(check: Check) -> None:
    """The check fails, as a check does: with what it is there to say."""
    with pytest.raises((AssertionError, procedures.IllegalStep, pytest.fail.Exception)):
        await check()


async def test_delete_before_proceed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hasty(self: ProcedureEngine, procedure: Procedure) -> bool:
        after = procedures.released(procedure, self._actor())
        if after.ended:
            return await self._end(procedure, after, procedure.finish)
        return await self._write(procedure, [engine_module.Put(procedure.key, engine_module.to_bytes(after))])

    monkeypatch.setattr(ProcedureEngine, "_release", hasty)
    await failing(lambda: crashed("drop-table"))
    with pytest.raises(Violated):
        await crashed("create-table")


async def test_proceed_for_another_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the submission, not for the change."""
    real = ProcedureEngine._release

    async def release(self: ProcedureEngine, procedure: Procedure) -> bool:
        wanted = self._store

        class Earlier:
            def __getattr__(self, name: str) -> Any:
                return getattr(wanted, name)

            async def released(self, revision: int) -> None:
                await wanted.released(procedure.done[0].revision)

        return await real(ProcedureEngine(Earlier(), "n1"), procedure)

    monkeypatch.setattr(ProcedureEngine, "_release", release)
    with pytest.raises(Violated):
        await crashed("drop-table")


async def test_a_step_that_does_not_compare_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    async def blind(self: ProcedureEngine, seen: Procedure, operations: Any, compare: Any = ()) -> bool:
        return (await self._store.txn(engine_module.Txn(tuple(compare), tuple(operations)))).succeeded

    monkeypatch.setattr(ProcedureEngine, "_write", blind)
    await failing(lambda: raced(range(150)))


async def test_a_plan_that_does_not_compare_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ProcedureEngine._write

    async def blind(self: ProcedureEngine, seen: Procedure, operations: Any, compare: Any = ()) -> bool:
        return await real(self, seen, operations)

    monkeypatch.setattr(ProcedureEngine, "_write", blind)
    await failing(test_releases.test_plan_is_made_again_when_its_rows_change)
    await failing(test_crashes.test_rows_written_during_a_delete_are_removed)


async def test_rollback_after_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused release takes a permission back."""
    monkeypatch.setattr(procedures.OperationKind, "keeps", property(lambda _: False))
    before, operation = BY_KIND["revoke"]
    await failing(
        lambda: test_releases.test_permissions_stay_pending_and_are_never_reported_as_failed(before, operation)
    )


async def test_rollback_that_puts_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    real = procedures.prepared
    monkeypatch.setattr(engine_module, "prepared", lambda p, plan, before, actor: real(p, plan, {}, actor))
    before, operation = BY_KIND["set-ttl"]
    await failing(lambda: test_releases.test_refused_release_restores_all_rows_exactly(before, operation))


async def test_rollback_while_destroying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procedures, "check_cancellable", lambda _: None)
    monkeypatch.setattr(engine_module, "check_cancellable", lambda _: None)
    await failing(test_releases.test_prepared_procedure_can_be_cancelled_and_a_destroying_one_cannot)
    table = {**procedures.NEXT, ProcedureState.DESTROYING: frozenset(ProcedureState)}
    monkeypatch.setattr(procedures, "NEXT", table)
    await failing(test_releases.test_prepared_procedure_can_be_cancelled_and_a_destroying_one_cannot)


async def test_locks_that_do_not_exclude(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module.locks, "are_free", lambda _: ())
    await failing(conflicting)
    await failing(test_releases.test_operation_on_a_locked_object_is_rejected_with_the_holders_name)


async def test_locks_that_see_nothing_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module.locks, "keys_above", lambda _: [])
    await failing(test_releases.test_lock_of_a_database_covers_its_content)


async def test_locks_that_are_given_back_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ProcedureEngine._prepare

    async def early(self: ProcedureEngine, procedure: Procedure) -> bool:
        done = await real(self, procedure)
        await self._store.txn(engine_module.Txn((), tuple(engine_module.locks.give_back(procedure.locks))))
        return done

    monkeypatch.setattr(ProcedureEngine, "_prepare", early)
    with pytest.raises(Violated):
        await crashed("drop-table")


async def test_a_resumed_procedure_draws_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(range(10_000))
    real = engine_module.Drawn
    monkeypatch.setattr(engine_module, "Drawn", lambda id_, object_id: real(id_, f"{object_id}-{next(drawn)}"))
    await failing(lambda: crashed("create-table"))


def test_the_cases_are_those_that_are_meant() -> None:
    assert BY_KIND["drop-table"][0] == [DB, TABLE]
    assert BY_KIND["set-ttl"][1] == TTL
    assert BY_KIND["create-user"][1] == USER
