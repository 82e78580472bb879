"""Causality tokens: the value of a component as of a revision (R10; seed 001: "won't return stale or inconsistent
data. It should be guaranteed by causality tokens mechanism").
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.base.version_history import TokenNotReached, TokenOutdated, Versions
from palisade.base.versioned_value import ValueFailed, VersionedValue


def test_versions_return_the_value_as_of_each_revision() -> None:
    values = Versions("none", completed=4)
    values.set(6, "six")
    values.complete(8)
    assert [values.at(revision) for revision in (4, 5, 6, 7, 8)] == ["none", "none", "six", "six", "six"]


def test_versions_refuse_an_incomplete_revision() -> None:
    values = Versions("none")
    values.set(1, "one")
    with pytest.raises(TokenNotReached):
        values.at(1)


def test_completed_revision_never_changes() -> None:
    values = Versions(0)
    values.complete(5)
    with pytest.raises(ValueError, match="never changes"):
        values.set(5, 1)
    with pytest.raises(ValueError, match="never go back"):
        values.complete(4)


def test_versions_refuse_outdated_tokens() -> None:
    values = Versions(0, kept=10)
    for revision in range(1, 101):
        values.set(revision, revision)
        values.complete(revision)
    assert values.at(90) == 90
    with pytest.raises(TokenOutdated, match="90 is the oldest"):
        values.at(89)


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=60), st.integers(1, 20))
def test_versions_match_a_full_history_for_remembered_revisions(steps: list[tuple[int, bool]], kept: int) -> None:
    values, history, now = Versions(0, kept=kept), {0: 0}, 0
    for step, changes in steps:
        for revision in range(now + 1, now + step + 1):
            history[revision] = history[revision - 1]
        now += step
        if changes:
            values.set(now, now)
            history[now] = now
        values.complete(now)
        for revision in range(max(0, now - kept), now + 1):
            assert values.at(revision) == history[revision]


async def test_waiter_gets_the_value_of_its_revision() -> None:
    value: VersionedValue[str] = VersionedValue("tables", "none")
    waiting = asyncio.create_task(value.at(2))
    await asyncio.sleep(0)
    value.set(2, "two")
    value.complete(2)
    value.set(3, "three")
    value.complete(3)
    assert await waiting == "two"


async def test_failed_owner_ends_all_waits() -> None:
    value: VersionedValue[int] = VersionedValue("tables", 0)
    waiting = asyncio.create_task(value.at(1))
    await asyncio.sleep(0)
    value.fail("it broke")
    with pytest.raises(ValueFailed, match="tables stays at revision 0: it broke"):
        await waiting
    with pytest.raises(ValueFailed):
        await value.at(1)
    assert await value.at(0) == 0


async def test_cancelled_waiter_does_not_affect_others() -> None:
    value: VersionedValue[int] = VersionedValue("tables", 0)
    waiting = [asyncio.create_task(value.at(1)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    value.complete(1)
    assert await waiting[1] == 0
