"""Every planted fault is seen, by a checker that it is for (issue 5): what this does not see, seeds would not find."""

from __future__ import annotations

import pytest

from tests.sim.plants import PLANTS
from tests.sim.prove import prove


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_seen(name: str) -> None:
    proof = prove(name)
    assert proof.right, proof
