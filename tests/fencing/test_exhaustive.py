"""The production machines in every interleaving of a small scope, to the end (issue 4, "Shown by" 3).

After `model/lease_model.py`. Larger scopes: `python -m tests.support.fencing_explorer "two terms, longer"`.
"""

from __future__ import annotations

import pytest

from tests.support.fencing_explorer import SCOPES, explore, with_fault

WORLDS = {"two terms": 2000, "two changes": 2000, "an old leader": 150}
"""At least so many are in the scope: else something is not tried any more."""
FOUND = {
    "lease_from_receipt": "two terms, longer",
    "grant_without_quorum": "an old leader",
    "no_stage": "two terms, longer",
    "ignore_required": "two terms, longer",
    "no_reset": "two terms, longer",
    "new_leader_reads": "two terms, longer",
    "new_leader_rr0": "two terms, longer",
    "unnoted_grant": "two terms, longer",
    "early_staged": "two terms, longer",
}
"""Faults of the model, and the scope in which every way is tried until one of them ends in a stale answer. The two that
need a holder to go and come back (no_promise, unbound_grant) are found by walks."""


@pytest.mark.parametrize("name", WORLDS)
def test_exhaustive_small_scopes_show_no_stale_value(name: str) -> None:
    explored = explore(*SCOPES[name], worlds_max=10_000)
    assert explored.violation is None, explored.trace
    assert explored.everything
    assert explored.worlds >= WORLDS[name]


@pytest.mark.parametrize("fault", FOUND)
def test_exhaustive_search_detects_a_planted_fault(fault: str) -> None:
    """The explorer omits no step that would show the fault."""
    scope, moves = SCOPES[FOUND[fault]]
    explored = explore(with_fault(scope, fault), moves, worlds_max=5_000)
    assert explored.violation is not None
