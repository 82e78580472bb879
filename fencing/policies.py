"""What a read of a cached region gets while the cache must not be trusted (F7). Pure.

A cache that may be trusted answers by itself, whatever the policy. Else, by policy:

    fail closed     a retryable error re-fetch        what the quorum says; a retryable error where it can't be asked
    deny            what the quorum says; "no" where it can't be asked (permissions) safe default    the default,
    without asking: what it leads to can be repaired (a TTL that is infinite deletes nothing)

A key that is pending is waited for, for a bounded time, and then a retryable error whatever the policy: a trusted cache
that does not know an answer *yet* is no reason to deny or to take a default.
"""

from __future__ import annotations

import enum
from typing import assert_never

from vault.regions import Policy


class Cache(enum.Enum):
    """What the vault says about a key."""

    TRUSTED = "it may answer"
    PENDING = "the key has a change that is not released"
    FENCED = "it must not be trusted"


class Fetch(enum.Enum):
    """What became of a question to the quorum. That the key does not exist is an answer."""

    NOT_ASKED = "nobody was asked"
    ANSWERED = "the quorum has answered"
    FAILED = "the quorum could not be asked, or did not answer in time"


class Answer(enum.Enum):
    """What the read does next."""

    CACHED = "what the vault says"
    WAIT = "wait for the release, for a bounded time"
    ASK = "ask the quorum"
    FETCHED = "what the quorum has said"
    DEFAULT = "the region's default"
    RETRY = "an error that a retry may mend"
    DENIED = "no"


def decide(policy: Policy, cache: Cache, fetch: Fetch = Fetch.NOT_ASKED, *, waited: bool = False) -> Answer:
    """The next step of a read. `waited`: the bounded wait for a release is over."""
    if cache is Cache.TRUSTED:
        return Answer.CACHED
    if cache is Cache.PENDING:
        return Answer.RETRY if waited else Answer.WAIT
    match policy:
        case Policy.FAIL_CLOSED:
            return Answer.RETRY
        case Policy.SAFE_DEFAULT:
            return Answer.DEFAULT
        case Policy.REFETCH:
            return _by_quorum(fetch, Answer.RETRY)
        case Policy.DENY:
            return _by_quorum(fetch, Answer.DENIED)
        case _:
            assert_never(policy)


def _by_quorum(fetch: Fetch, otherwise: Answer) -> Answer:
    return {Fetch.NOT_ASKED: Answer.ASK, Fetch.ANSWERED: Answer.FETCHED, Fetch.FAILED: otherwise}[fetch]
