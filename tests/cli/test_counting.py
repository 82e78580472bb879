"""The counts that run while segments move fail for a wrong number, and for a broker that reports a missing segment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palisade.cli.scenarios.counting import QueryCounts, WrongCount, interrupted

DAY = "flights/2013-01-01T00:00:00.000Z/2013-01-02T00:00:00.000Z/0000000000000001/00000"
PART = {"segment": DAY, "from": DAY.split("/")[1], "to": DAY.split("/")[2], "nodes": ["a"]}


class StubClient:
    """In place of `palisade.Client`: a broker with one segment of ten rows."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    async def segments_list(self, data_source: str) -> dict[str, Any]:
        return {"count": 1, "segments": [{"segment": DAY, "state": "served", "rows": 10}]}

    async def segments_lookup(self, data_source: str, start: str, end: str, *, on_missing: str) -> dict[str, Any]:
        parts = [] if self.missing else [PART]
        return {"segments": parts, "missing": self.missing, "unserved": [], "revision": 7}


async def ten(node: str, segment: str) -> int:
    return 10


@pytest.fixture
def counts() -> QueryCounts:
    counts = QueryCounts([], "flights", "2013-01-01", "2013-01-02", 10)
    counts._client = StubClient()  # type: ignore[assignment]
    counts.ask = ten  # type: ignore[method-assign, assignment]
    return counts


async def test_count_with_another_number_of_rows_fails(counts: QueryCounts) -> None:
    assert (await counts.one()).rows == 10
    counts.rows = 11
    with pytest.raises(WrongCount, match="10 rows instead of 11, at revision 7"):
        await counts.one()


async def test_count_fails_at_the_first_answer_of_a_broker_with_a_missing_segment(counts: QueryCounts) -> None:
    counts._client.missing = [DAY]  # type: ignore[attr-defined]
    with pytest.raises(WrongCount, match=f"missing at revision 7: {DAY}"):
        await counts.one()


async def test_counts_run_until_the_work_has_ended_and_once_after_it(counts: QueryCounts) -> None:
    async def work() -> None:
        while counts.done < 5:  # noqa: ASYNC110
            await asyncio.sleep(0)

    meanwhile = await counts.during(work(), at_once=2)
    assert meanwhile >= 5
    assert counts.done == meanwhile + 1


async def test_counts_report_the_failure_of_the_work(counts: QueryCounts) -> None:
    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await counts.during(work())


async def test_event_happens_before_the_request_with_its_number() -> None:
    seen: list[str] = []

    async def event() -> None:
        seen.append("event")

    async def ask(node: str, segment: str) -> int:
        seen.append(segment)
        return 1

    asks = interrupted(ask, event, after=2)
    for name in "abc":
        await asks("n", name)
    assert seen == ["a", "b", "event", "c"]
