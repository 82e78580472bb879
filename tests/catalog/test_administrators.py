"""A change that would leave no user with admin on all keys is refused: users could not be changed any more (issue 16).
etcd refuses to delete root while authentication is on."""

from __future__ import annotations

import asyncio

import pytest

from palisade.catalog import keys
from palisade.catalog.procedures import ProcedureState
from tests.support.catalog_world import CatalogWorld, Operation, world_for

PASSWORD = "correct horse"
ROOT: list[Operation] = [
    ("create-user", {"user": "root", "password": PASSWORD}),
    ("grant", {"subject": "user:root", "privilege": "admin", "prefix": ""}),
    ("create-user", {"user": "guest", "password": PASSWORD}),
]
BY_ROLE: list[Operation] = [
    ("create-role", {"role": "admins"}),
    ("grant", {"subject": "role:admins", "privilege": "admin", "prefix": ""}),
    ("create-user", {"user": "alice", "password": PASSWORD}),
    ("grant-role", {"user": "alice", "role": "admins"}),
]
TAKES_ALL: list[tuple[list[Operation], Operation]] = [
    (ROOT, ("drop-user", {"user": "root"})),
    (ROOT, ("revoke", {"subject": "user:root", "privilege": "admin", "prefix": ""})),
    (BY_ROLE, ("drop-user", {"user": "alice"})),
    (BY_ROLE, ("drop-role", {"role": "admins"})),
    (BY_ROLE, ("revoke-role", {"user": "alice", "role": "admins"})),
    (BY_ROLE, ("revoke", {"subject": "role:admins", "privilege": "admin", "prefix": ""})),
]
IDS = [f"{kind} {' '.join(map(str, request.values()))}" for _, (kind, request) in TAKES_ALL]


def users(world: CatalogWorld) -> dict[bytes, bytes]:
    return {**world.below(keys.USERS), **world.below(keys.ROLES)}


@pytest.mark.parametrize(("before", "operation"), TAKES_ALL, ids=IDS)
async def test_last_administrator_stays(before: list[Operation], operation: Operation) -> None:
    world = await world_for(before)
    kind, request = operation
    kept = users(world)
    done = await world.do(kind, **request)
    assert done.state is ProcedureState.FAILED
    assert "no user with admin on all keys would remain" in str(done.failed)
    assert users(world) == kept


@pytest.mark.parametrize(("before", "operation"), TAKES_ALL, ids=IDS)
async def test_administrator_beside_another_one_goes(before: list[Operation], operation: Operation) -> None:
    world = await world_for([*ROOT, *BY_ROLE])
    kind, request = operation
    assert (await world.do(kind, **request)).state is ProcedureState.DONE


@pytest.mark.parametrize(
    "operation",
    [
        ("drop-user", {"user": "guest"}),
        ("revoke", {"subject": "user:guest", "privilege": "admin", "prefix": "/mine/"}),
        ("drop-role", {"role": "ops"}),
        ("revoke-role", {"user": "guest", "role": "ops"}),
        ("revoke", {"subject": "role:admins", "privilege": "admin", "prefix": ""}),
        ("drop-role", {"role": "admins"}),
    ],
    ids=lambda operation: " ".join(map(str, (operation[0], *operation[1].values()))),
)
async def test_users_without_any_administrator_may_be_changed(operation: Operation) -> None:
    """Before authorization is switched on, there need not be one."""
    world = await world_for(
        [
            ROOT[2],
            ("grant", {"subject": "user:guest", "privilege": "admin", "prefix": "/mine/"}),
            ("create-role", {"role": "ops"}),
            ("grant-role", {"user": "guest", "role": "ops"}),
            *BY_ROLE[:2],
        ]
    )
    kind, request = operation
    assert (await world.do(kind, **request)).state is ProcedureState.DONE


@pytest.mark.parametrize("seed", range(30))
async def test_two_administrators_who_drop_each_other_do_not_both_go(seed: int) -> None:
    world = (await world_for([*ROOT, *BY_ROLE])).copied(seed)
    done = await asyncio.gather(world.do("drop-user", user="root"), world.do("drop-user", user="alice"))
    assert sorted(each.state.value for each in done) == ["done", "failed"]
