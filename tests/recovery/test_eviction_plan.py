"""A resource whose eviction or fetching has begun is in doubt until the step is known to be finished (issue 16)."""

from __future__ import annotations

import pytest

from palisade.recovery.eviction import plan_eviction
from palisade.recovery.eviction_plan import EvictionAction, EvictionPlan, Step, pack_plan, unpack_plan

EVICT, FETCH = EvictionAction.EVICT, EvictionAction.FETCH


@pytest.mark.parametrize(("done", "open_"), [(0, "abc"), (1, "bc"), (2, "c"), (3, "")])
def test_steps_from_the_first_unfinished_one_on_are_open(done: int, open_: str) -> None:
    plan = EvictionPlan(7, 0, (Step(EVICT, "a"), Step(EVICT, "b"), Step(FETCH, "c", "1")))
    assert plan.open_after(done) == set(open_)


@pytest.mark.parametrize("first", [{}, {"a": "2"}], ids=["evicted", "replaced"])
def test_resource_that_is_assigned_again_during_its_eviction_is_fetched_anew(first: dict[str, str]) -> None:
    """A crash in its eviction leaves a part of it, which looks like all of it: of the version that the next snapshot
    assigns here again."""
    interrupted = plan_eviction(7, {"a": "1"}, first)
    assert interrupted.steps[0] == Step(EVICT, "a")
    doubtful = unpack_plan(pack_plan(interrupted)).open_after(0)
    following = plan_eviction(9, {"a": "1"}, {"a": "1"}, doubtful)
    assert following == EvictionPlan(9, 0, (Step(EVICT, "a"), Step(FETCH, "a", "1")))


def test_resource_in_doubt_that_is_not_listed_is_evicted() -> None:
    """What is left of it may be hidden."""
    assert plan_eviction(9, {}, {}, {"a"}).steps == (Step(EVICT, "a"),)
