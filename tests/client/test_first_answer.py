"""What any node can answer is asked of the others beside a node that may not answer now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from palisade.api.segment_service import SegmentLookups
from palisade.api.stream.server import StreamServer
from palisade.client import Client, Unavailable
from palisade.client.first_answer import first_answer
from palisade.vault.errors import Fenced, Pending
from palisade.wire.segment_errors import NoSuchDataSource
from tests.api.test_http_segments import DAY
from tests.support.proxy import Proxy

YEAR = "2013-01-01", "2014-01-01"


async def after(turns: int, outcome: int | Exception) -> int:
    for _ in range(turns):
        await asyncio.sleep(0)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@pytest.mark.parametrize(
    ("here", "beside", "found"),
    [
        ((2, 1), [(9, 2)], 1),
        ((9, 1), [(2, 2)], 2),
        ((9, 1), [(2, OSError()), (4, 3)], 3),
        ((5, 1), [(1, OSError()), (2, OSError())], 1),
        ((5, 1), [], 1),
    ],
)
async def test_first_answer_counts(here: tuple[int, int], beside: list[Any], found: int) -> None:
    assert await first_answer(after(*here), [after(*each) for each in beside]) == found
    assert len(asyncio.all_tasks()) == 1, "no request is left"


async def test_error_of_the_node_itself_counts_although_others_are_asked() -> None:
    with pytest.raises(LookupError):
        await first_answer(after(2, LookupError()), [after(9, 2)])
    assert len(asyncio.all_tasks()) == 1


async def test_refusal_that_holds_everywhere_is_an_answer() -> None:
    with pytest.raises(KeyError):
        await first_answer(after(9, 1), [after(1, OSError()), after(2, KeyError())], (KeyError,))


@pytest.mark.parametrize("ask", [lambda c: c.segments_list(), lambda c: c.segments_lookup("flights", *YEAR)])
async def test_lookup_is_answered_by_another_node_while_its_own_is_fenced(
    stream: StreamServer, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Client], Coroutine[Any, Any, dict[str, Any]]]
) -> None:
    """It was repeated at the node that was recovering until it ended with that reason after 5 s."""
    async with Proxy(stream.port) as other, Proxy(stream.port) as frozen:
        frozen.muted = True
        addresses = [f"127.0.0.1:{stream.port}", frozen.endpoint, other.endpoint]
        async with Client(addresses, timeout_s=2.0, follow_leader=False) as client:
            await client.segments_publish("flights", [{**DAY, "from": "2013-01-01", "to": "2013-01-02"}])
            call = client._call

            async def fenced(name: str, *arguments: Any, **options: Any) -> Any:
                if name.startswith("segments_"):
                    raise Fenced("the node is recovering: it has no lease yet")
                return await call(name, *arguments, **options)

            monkeypatch.setattr(client, "_call", fenced)
            assert (await ask(client))["revision"] > 0
            with pytest.raises(NoSuchDataSource):
                await client.segments_list("trains")


async def test_lookup_waits_for_a_release_until_its_deadline(
    stream: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with that refusal a quarter of its time before the deadline: after 4 of 5 s, while a release after the
    death of a leader takes 4.4 s."""
    async with Client(f"127.0.0.1:{stream.port}", timeout_s=2.0) as client:
        await client.segments_publish("flights", [{**DAY, "from": "2013-01-01", "to": "2013-01-02"}])
        now, listed = asyncio.get_running_loop().time, SegmentLookups.listed
        released_at = now() + 1.8

        async def pending(*given: Any) -> dict[str, Any]:
            if now() < released_at:
                raise Pending("the range from palisade/segments/ has a change that is not released yet")
            return await listed(*given)

        monkeypatch.setattr(SegmentLookups, "listed", pending)
        assert (await client.segments_list())["data_sources"] == ["flights"]


async def test_lookup_that_no_node_answers_ends_with_the_reason(
    stream: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fenced(*_: Any, **__: Any) -> Any:
        raise Fenced("the node is recovering: it has no lease yet")

    async with Proxy(stream.port) as other:
        monkeypatch.setattr(Client, "_call", fenced)
        async with Client([f"127.0.0.1:{stream.port}", other.endpoint], timeout_s=0.3) as client:
            with pytest.raises((Fenced, Unavailable), match="recovering"):
                await client.segments_list()
            assert client.trouble is None
