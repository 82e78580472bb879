"""The catalog of a node: operations begun anywhere, carried out by the leader, and what is answered when (F8, F9)."""

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
from palisade.service.callers import EVERYBODY
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


async def test_an_operation_is_answered_when_its_end_is_released(catalog: Catalog) -> None:
    outcome = await catalog.do("create-database", {"database": "plant"}, "mine", 5)
    assert outcome.settled
    assert (outcome.procedure.id, outcome.procedure.state) == ("mine", ProcedureState.DONE)
    found = await catalog.object("databases", "plant")
    assert found["name"] == "plant"
    assert found["mod_revision"] < outcome.procedure.revision


async def test_what_is_not_released_is_pending_and_says_for_whom(catalog: Catalog) -> None:
    """F10: each wait says for whom it waits; the caller hears the state of it, not an error."""
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


async def test_what_can_not_be_released_is_rolled_back_and_said_so(catalog: Catalog) -> None:
    gate = Gate(catalog)
    gate.refused = "n3 can't fence itself"
    with pytest.raises(RolledBack, match="n3 can't fence itself"):
        await catalog.do("create-database", {"database": "plant"}, "mine", 2)
    with pytest.raises(NotThere):
        await catalog.object("databases", "plant")


async def test_a_revoke_is_pending_however_long_and_never_failed(catalog: Catalog) -> None:
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


async def test_no_leader_is_needed_to_look_for_what_was_begun(
    catalog: Catalog, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The majority is lost right after the operation was recorded: to say "nothing was done" would be wrong (F8)."""
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


async def test_an_unknown_outcome_names_the_procedure(catalog: Catalog, group: FakeGroup) -> None:
    group.majority = False
    group.try_read_barrier = lambda: True  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown, match="procedure mine"):
        await catalog.do("create-database", {"database": "plant"}, "mine", 2)


async def test_a_member_that_does_not_lead_begins_and_waits_and_the_next_leader_carries_out(
    catalog: Catalog, group: FakeGroup
) -> None:
    group.led_by("n2")
    await until(lambda: not catalog.runner.working)
    begun = asyncio.create_task(catalog.do("create-database", {"database": "plant"}, "mine", 10))
    await until(lambda: group.store.get(keys.PROCEDURES + b"mine") is not None)
    assert not catalog.runner.working
    group.led_by("n1")
    assert (await begun).settled


async def test_who_leads_no_more_drops_its_work_and_the_next_one_goes_on(catalog: Catalog, group: FakeGroup) -> None:
    gate = Gate(catalog)
    assert not (await catalog.do("create-database", {"database": "plant"}, "mine", 0.2)).settled
    await until(lambda: catalog.runner.working == {"mine"})
    group.led_by("n2")
    await until(lambda: not catalog.runner.working)
    gate.opened.set()
    group.led_by("n1")
    assert (await catalog.wait("mine", 10)).settled


async def test_who_comes_second_waits_for_its_turn_or_is_told_who_is_first(catalog: Catalog) -> None:
    await a_table(catalog)
    gate = Gate(catalog)
    await catalog.do("drop-table", {"table": "plant.readings"}, "first", 0.0)
    with pytest.raises(Busy, match="locked by procedure first"):
        await catalog.do("set-ttl", {"path": "plant.readings", "ttl_ms": 5}, "second", 0.3)
    queued = asyncio.create_task(catalog.do("set-ttl", {"path": "plant.readings", "ttl_ms": 5}, "third", 10))
    gate.opened.set()
    assert (await queued).settled


async def test_the_same_id_is_the_same_operation_and_another_one_is_refused(catalog: Catalog) -> None:
    first = await catalog.do("create-user", {"user": "alice", "password": "correct horse"}, "mine", 5)
    again = await catalog.do("create-user", {"user": "alice", "password": "correct horse"}, "mine", 5)
    assert again.procedure.revision == first.procedure.revision
    with pytest.raises(ProcedureDiffers):
        await catalog.do("create-role", {"role": "alice"}, "mine", 5)


async def test_no_view_has_a_password_or_a_hash(catalog: Catalog, service: KeyValues) -> None:
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
async def test_an_id_is_checked_and_none_is_drawn(catalog: Catalog, id_: object) -> None:
    if id_ in ("", None):
        assert len((await catalog.do("create-role", {"role": "ops"}, id_)).procedure.id) == 16
    else:
        with pytest.raises(BadField, match="procedure: "):
            await catalog.do("create-role", {"role": "ops"}, id_)


@pytest.mark.parametrize("wait_s", [-1.0, 1e9, float("nan")])
async def test_a_wait_that_makes_no_sense_is_refused(catalog: Catalog, wait_s: float) -> None:
    with pytest.raises(BadField, match="wait_s"):
        await catalog.do("create-role", {"role": "ops"}, "mine", wait_s)


# What is there.


async def test_what_is_being_dropped_is_not_there_any_more(catalog: Catalog) -> None:
    await a_table(catalog)
    await catalog.do("create-database", {"database": "other"})
    Gate(catalog)
    await catalog.do("drop-database", {"database": "plant"}, "mine", 0.2)
    assert [each["name"] for each in (await catalog.objects("databases"))["objects"]] == ["other"]
    assert (await catalog.objects("tables"))["objects"] == []
    for collection, name in (("databases", "plant"), ("tables", "plant.readings")):
        with pytest.raises(NotThere):
            await catalog.object(collection, name)


async def test_lists_go_by_path_and_page_by_page(catalog: Catalog) -> None:
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


async def test_a_damaged_row_is_shown_as_such_and_hides_no_other(catalog: Catalog, service: KeyValues) -> None:
    await a_table(catalog)
    await service.write(Put(keys.at(keys.TABLES, "plant.bad"), b"garbage"), caller=EVERYBODY)
    found = {each["name"]: each for each in (await catalog.objects("tables"))["objects"]}
    assert set(found) == {"plant.bad", "plant.readings"}
    assert "damaged catalog row" in found["plant.bad"]["damaged"]


async def test_locks_of_a_procedure_whose_record_was_deleted_are_given_back(
    catalog: Catalog, service: KeyValues, group: FakeGroup
) -> None:
    Gate(catalog)
    await catalog.do("create-database", {"database": "plant"}, "mine", 0.0)
    await until(lambda: catalog.runner.working == {"mine"})
    group.led_by("n2")
    await until(lambda: not catalog.runner.working)
    await service.write(DeleteRange(keys.PROCEDURES + b"mine"), caller=EVERYBODY)
    group.led_by("n1")
    await until(lambda: not service.store.get(keys.LOCKS + b"paths/plant/"))


async def test_procedures_that_ended_long_ago_are_forgotten(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.catalog.engine.KEPT", 3)
    for number in range(6):
        await catalog.do("create-role", {"role": f"r{number}"}, f"p{number}", 5)
    assert await catalog._engine.prune() == 3
    assert {view["id"] for view in await catalog.procedures()} == {"p3", "p4", "p5"}
    assert await catalog._engine.prune() == 0
