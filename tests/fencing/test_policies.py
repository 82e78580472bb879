"""F7: the table of policies, all of it."""

from __future__ import annotations

from itertools import product

import pytest

from fencing.policies import Answer, Cache, Fetch, decide
from vault.regions import Policy


@pytest.mark.parametrize(("policy", "fetch", "waited"), list(product(Policy, Fetch, [False, True])))
def test_a_trusted_cache_answers_whatever_the_policy(policy: Policy, fetch: Fetch, waited: bool) -> None:
    assert decide(policy, Cache.TRUSTED, fetch, waited=waited) is Answer.CACHED


@pytest.mark.parametrize(("policy", "fetch"), list(product(Policy, Fetch)))
def test_a_pending_key_is_waited_for_and_then_an_error(policy: Policy, fetch: Fetch) -> None:
    assert decide(policy, Cache.PENDING, fetch) is Answer.WAIT
    assert decide(policy, Cache.PENDING, fetch, waited=True) is Answer.RETRY


FENCED = {
    Policy.FAIL_CLOSED: (Answer.RETRY, Answer.RETRY, Answer.RETRY),
    Policy.REFETCH: (Answer.ASK, Answer.FETCHED, Answer.RETRY),
    Policy.DENY: (Answer.ASK, Answer.FETCHED, Answer.DENIED),
    Policy.SAFE_DEFAULT: (Answer.DEFAULT, Answer.DEFAULT, Answer.DEFAULT),
}


@pytest.mark.parametrize("policy", Policy)
def test_a_fenced_cache_never_answers(policy: Policy) -> None:
    assert tuple(decide(policy, Cache.FENCED, fetch) for fetch in Fetch) == FENCED[policy]
