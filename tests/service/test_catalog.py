"""The catalog of a node: operations begun at any member, executed by the leader, and the time of their responses (F8,
F9)."""

from __future__ import annotations

import asyncio

import pytest

from palisade.api.services import NodeServices
from palisade.catalog import keys
from palisade.catalog.errors import BadField, Busy, NotThere, ProcedureDiffers, RolledBack
from palisade.catalog.ports import ReleaseRefused
from palisade.catalog.procedures import ProcedureState
from palisade.metastore.requests import DeleteRange, Put
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.service.callers import UNRESTRICTED
from palisade.service.catalog import Catalog, CatalogOutcome
from palisade.service.key_values import KeyValues
from tests.support.fake_group import FakeGroup
from tests.support.waiting import until

COLUMNS = [{"name": "machine", "type": "string", "category": "tag"}, {"name": "pressure", "type": "double"}]


@pytest.fixture
def catalog(services: NodeServices) -> Catalog:
    assert services.catalog is not None
    return services.catalog


class Gate:
    """PROCEED under the test's control."""

    def __init__(self, catalog: Catalog) -> None:
        self.opened = asyncio.Event()
        self.refused = ""
        catalog.releases.released = self.released
        catalog.releases.waiting_for = lambda revision: ["n3"]

    async def released(self, revision: int) -> None:
        if self.refused:
            raise ReleaseRefused(self.refused)
        await self.opened.wait()


async def a_table(catalog: Catalog) -> None:
    await catalog.do("create-database", {"database": "plant"})
    await catalog.do("create-table", {"table": "plant.readings", "columns": COLUMNS})


async def test_operation_returns_when_its_end_is_released(catalog: Catalog) -> None:
    outcome = await catalog.do("create-database", {"database": "plant"}, "mine", 5)
    assert outcome.settled
    assert (outcome.procedure.id, outcome.procedure.state) == ("mine", ProcedureState.DONE)
    found = await catalog.object("databases", "plant")
    assert found["name"] == "plant"
    assert found["mod_revision"] < outcome.procedure.revision


async def test_unreleased_operation_is_pending_and_names_the_nodes(catalog: Catalog) -> None:
    """F10: each wait names the nodes that it waits for; the caller gets its state, not an error."""
    gate = Gate(catalog)
    outcome = await catalog.do("create-database", {"database": "plant"}, "mine", 0.4)
    assert not outcome.settled
    assert outcome.procedure.state is ProcedureState.PREPARED
    view = await catalog.procedure("mine")
    assert view["waiting"] == {"revision": outcome.procedure.revision, "for": ["n3"]}
    assert not view["released"]
    gate.opened.set()
    assert (await catalog.wait("mine", 5)).settled
    assert (await catalog.procedure("mine", 5))["released"]


async def test_operation_that_cannot_be_released_is_rolled_back(catalog: Catalog) -> None:
    gate = Gate(catalog)
    gate.refused = "n3 can't fence itself"
    with pytest.raises(RolledBack, match="n3 can't fence itself"):
        await catalog.do("create-database", {"database": "plant"}, "mine", 2)
    with pytest.raises(NotThere):
        await catalog.object("databases", "plant")


async def test_revoke_stays_pending_and_never_fails(catalog: Catalog) -> None:
    """F8; point 3 of the review of seed 000."""
    await catalog.do("create-role", {"role": "ops"})
    read = {"subject": "role:ops", "privilege": "read", "prefix": "/"}
    await catalog.do("grant", read)
    gate = Gate(catalog)
    gate.refused = "n3 can't fence itself"
    outcome = await catalog.do("revoke", read, "mine", 0.3)
    assert outcome.procedure.state is ProcedureState.PREPARED
    assert (await catalog.object("roles", "ops"))["grants"] == []
    gate.refused = ""
    gate.opened.set()
    assert (await catalog.wait("mine", 10)).procedure.state is ProcedureState.DONE


async def test_procedure_is_readable_without_a_leader(
    catalog: Catalog, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The majority is lost right after the operation was recorded: "nothing was done" would be wrong (F8)."""
    submit = catalog._engine.submit

    async def then_lost(*arguments: object) -> object:
        begun = await submit(*arguments)  # type: ignore[arg-type]
        group.majority = False
        return begun

    monkeypatch.setattr(catalog._engine, "submit", then_lost)
    outcome = await catalog.do("create-database", {"database": "plant"}, "mine", 2)
    assert isinstance(outcome, CatalogOutcome)
    assert not outcome.settled
    group.majority = True
    assert (await catalog.wait("mine", 10)).settled


async def test_unknown_outcome_names_the_procedure(catalog: Catalog, group: FakeGroup) -> None:
    group.majority = False
    group.try_read_barrier = lambda: True  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown, match="procedure mine"):
        await catalog.do("create-database", {"database": "plant"}, "mine", 2)


async def test_operation_begun_at_a_follower_is_executed_by_the_next_leader(catalog: Catalog, group: FakeGroup) -> None:
    group.led_by("n2")
    await until(lambda: not catalog.runner.working)
    begun = asyncio.create_task(catalog.do("create-database", {"database": "plant"}, "mine", 10))
    await until(lambda: group.store.get(keys.PROCEDURES + b"mine") is not None)
    assert not catalog.runner.working
    group.led_by("n1")
    assert (await begun).settled


async def test_deposed_leader_drops_its_work_and_the_next_one_continues(catalog: Catalog, group: FakeGroup) -> None:
    gate = Gate(catalog)
    assert not (await catalog.do("create-database", {"database": "plant"}, "mine", 0.2)).settled
    await until(lambda: catalog.runner.working == {"mine"})
    group.led_by("n2")
    await until(lambda: not catalog.runner.working)
    gate.opened.set()
    group.led_by("n1")
    assert (await catalog.wait("mine", 10)).settled


async def test_second_operation_waits_or_fails_naming_the_first(catalog: Catalog) -> None:
    await a_table(catalog)
    gate = Gate(catalog)
    await catalog.do("drop-table", {"table": "plant.readings"}, "first", 0.0)
    with pytest.raises(Busy, match="locked by procedure first"):
        await catalog.do("set-ttl", {"path": "plant.readings", "ttl_ms": 5}, "second", 0.3)
    queued = asyncio.create_task(catalog.do("set-ttl", {"path": "plant.readings", "ttl_ms": 5}, "third", 10))
    gate.opened.set()
    assert (await queued).settled


async def test_repeated_id_returns_the_same_operation_or_is_refused(catalog: Catalog) -> None:
    first = await catalog.do("create-user", {"user": "alice", "password": "correct horse"}, "mine", 5)
    again = await catalog.do("create-user", {"user": "alice", "password": "correct horse"}, "mine", 5)
    assert again.procedure.revision == first.procedure.revision
    with pytest.raises(ProcedureDiffers):
        await catalog.do("create-role", {"role": "alice"}, "mine", 5)


async def test_views_contain_no_password_and_no_hash(catalog: Catalog, service: KeyValues) -> None:
    Gate(catalog)
    await catalog.do("create-user", {"user": "alice", "password": "correct horse"}, "mine", 0.3)
    credential = service.store.get(keys.CREDENTIALS + b"alice")
    assert credential is not None
    assert b"scrypt" in credential.value
    assert b"correct" not in credential.value
    shown = str([await catalog.procedure("mine"), await catalog.procedures(), await catalog.objects("users")])
    assert "alice" in shown
    for secret in ("correct horse", "scrypt", "hash", "salt"):
        assert secret not in shown


@pytest.mark.parametrize("id_", ["a/b", "", "x" * 65, 5, "a b", None])
async def test_id_is_checked_and_chosen_if_missing(catalog: Catalog, id_: object) -> None:
    if id_ in ("", None):
        assert len((await catalog.do("create-role", {"role": "ops"}, id_)).procedure.id) == 16
    else:
        with pytest.raises(BadField, match="procedure: "):
            await catalog.do("create-role", {"role": "ops"}, id_)


@pytest.mark.parametrize("wait_s", [-1.0, 1e9, float("nan")])
async def test_invalid_wait_is_refused(catalog: Catalog, wait_s: float) -> None:
    with pytest.raises(BadField, match="wait_s"):
        await catalog.do("create-role", {"role": "ops"}, "mine", wait_s)


# Objects.


async def test_dropped_objects_are_hidden_at_once(catalog: Catalog) -> None:
    await a_table(catalog)
    await catalog.do("create-database", {"database": "other"})
    Gate(catalog)
    await catalog.do("drop-database", {"database": "plant"}, "mine", 0.2)
    assert [each["name"] for each in (await catalog.objects("databases"))["objects"]] == ["other"]
    assert (await catalog.objects("tables"))["objects"] == []
    for collection, name in (("databases", "plant"), ("tables", "plant.readings")):
        with pytest.raises(NotThere):
            await catalog.object(collection, name)


async def test_lists_are_filtered_by_path_and_paged(catalog: Catalog) -> None:
    await a_table(catalog)
    series = [{"name": "heat", "type": "int32"}]
    for path in ("plant.l.b", "plant.l.a", "plant.l-x", "plant.la.c", "plant.l"):
        await catalog.do("create-device", {"device": path, "series": series})
    found = await catalog.objects("devices", below="plant.l")
    assert [each["name"] for each in found["objects"]] == ["plant.l", "plant.l.a", "plant.l.b"]
    first = await catalog.objects("devices", limit=2)
    assert first["more"]
    rest = await catalog.objects("devices", after=first["last"])
    names = [each["name"] for each in first["objects"] + rest["objects"]]
    assert names == ["plant.l", "plant.l-x", "plant.l.a", "plant.l.b", "plant.la.c"]


async def test_damaged_row_is_shown_as_such_and_hides_no_other(catalog: Catalog, service: KeyValues) -> None:
    await a_table(catalog)
    await service.write(Put(keys.at(keys.TABLES, "plant.bad"), b"garbage"), caller=UNRESTRICTED)
    found = {each["name"]: each for each in (await catalog.objects("tables"))["objects"]}
    assert set(found) == {"plant.bad", "plant.readings"}
    assert "damaged catalog row" in found["plant.bad"]["damaged"]


async def test_locks_of_a_deleted_procedure_are_released(
    catalog: Catalog, service: KeyValues, group: FakeGroup
) -> None:
    Gate(catalog)
    await catalog.do("create-database", {"database": "plant"}, "mine", 0.0)
    await until(lambda: catalog.runner.working == {"mine"})
    group.led_by("n2")
    await until(lambda: not catalog.runner.working)
    await service.write(DeleteRange(keys.PROCEDURES + b"mine"), caller=UNRESTRICTED)
    group.led_by("n1")
    await until(lambda: not service.store.get(keys.LOCKS + b"paths/plant/"))


async def test_procedures_that_ended_long_ago_are_deleted(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.catalog.engine.KEPT", 3)
    for number in range(6):
        await catalog.do("create-role", {"role": f"r{number}"}, f"p{number}", 5)
    assert await catalog._engine.prune() == 3
    assert {view["id"] for view in await catalog.procedures()} == {"p3", "p4", "p5"}
    assert await catalog._engine.prune() == 0
