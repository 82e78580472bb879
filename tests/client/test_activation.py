"""The agreed records of roles as an operator reads and forces them, over a store in simulated time (A4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from palisade.catalog.activation import ActivationRecord, ClaimState, LocalSequence, lock_name, record_key
from palisade.catalog.errors import NotAllowed
from palisade.catalog.forced_activation import AgreedView, CopyReport, ForcedActivation, Operator, forced
from palisade.client.activation import claim_forced, commit_forced, read_role, read_roles
from tests.support.claims_world import ClaimsWorld, Holder

COMMITTED = ActivationRecord("r", 4, ClaimState.COMMITTED, "n1", 4, 1)


@pytest.fixture
def world() -> Iterator[ClaimsWorld]:
    with closing(ClaimsWorld()) as world:
        yield world


@pytest.fixture
def operator(world: ClaimsWorld) -> Holder:
    return world.process("operator")


def to_force(sequence: int = 4) -> ForcedActivation:
    chosen = CopyReport("/a", LocalSequence(sequence, 1))
    return forced("r", "n1", chosen, [], AgreedView(COMMITTED, 1), Operator("root", 5))


def test_roles_are_read_with_record_and_holder(world: ClaimsWorld, operator: Holder) -> None:
    operator.run(operator.store.put(COMMITTED.key, COMMITTED.to_bytes()))
    value = json.dumps({"name": "n2", "address": "127.0.0.1:7501"})
    copy = world.process("n2")
    claim = copy.campaign(value, lock_name("s").decode())
    copy.run(claim.acquire())
    first, second = operator.run(read_roles(operator.store))
    assert (first.role, first.record, first.holder) == ("r", COMMITTED, "")
    assert (second.role, second.record, second.holder) == ("s", None, "n2 at 127.0.0.1:7501")
    assert second.token == claim.token


def test_forced_activation_leaves_an_audit_record(operator: Holder) -> None:
    operator.run(operator.store.put(COMMITTED.key, COMMITTED.to_bytes()))
    seen = operator.run(read_role(operator.store, "r"))
    claimed = operator.run(claim_forced(operator.store, to_force(), seen))
    between = operator.run(read_role(operator.store, "r"))
    assert (between.record, between.revision) == (to_force().claim(), claimed)
    operator.run(commit_forced(operator.store, to_force(), claimed))
    after = operator.run(read_role(operator.store, "r"))
    assert (after.record, after.forced) == (to_force().commit(), (to_force(),))


def test_record_that_changed_meanwhile_is_not_overwritten(operator: Holder) -> None:
    """Planted (no comparison of the record's revision): another copy's claim is lost."""
    store = operator.store
    operator.run(store.put(COMMITTED.key, COMMITTED.to_bytes()))
    seen = operator.run(read_role(store, "r"))
    operator.run(store.put(COMMITTED.key, COMMITTED.to_bytes()))
    with pytest.raises(NotAllowed, match="its record changed"):
        operator.run(claim_forced(store, to_force(), seen))
    seen = operator.run(read_role(store, "r"))
    claimed = operator.run(claim_forced(store, to_force(), seen))
    operator.run(store.put(record_key("r"), COMMITTED.to_bytes()))
    with pytest.raises(NotAllowed, match="sequence 5 is not committed"):
        operator.run(commit_forced(store, to_force(), claimed))


def test_role_that_a_copy_takes_is_not_forced(world: ClaimsWorld, operator: Holder) -> None:
    """Planted (no comparison of the lock): a copy that holds it continues beside the forced one."""
    operator.run(operator.store.put(COMMITTED.key, COMMITTED.to_bytes()))
    seen = operator.run(read_role(operator.store, "r"))
    copy = world.process("n2")
    copy.run(copy.campaign("n2", lock_name("r").decode()).acquire())
    with pytest.raises(NotAllowed, match="a copy began to take the role"):
        operator.run(claim_forced(operator.store, to_force(), seen))
