"""The same requests to a real etcd and to a node: every answer has to be equal, revisions included (issue 2, N2).

PALISADE_DIFFERENTIAL_S is how long the random part runs (default 7 s, for each kind of store),
PALISADE_DIFFERENTIAL_SEED repeats a run. What may differ is listed, with the reason, in docs/etcd-compatibility.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from random import Random, SystemRandom
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.differential.compared import Answer, answer_of, without_own
from tests.differential.operations import Operations, Request, encoded

pytestmark = pytest.mark.e2e

RUN_S = float(os.environ.get("PALISADE_DIFFERENTIAL_S", "7"))
REQUESTS_MIN = 1500


def seed_of_run() -> int:
    seed = int(os.environ.get("PALISADE_DIFFERENTIAL_SEED", SystemRandom().randrange(1 << 32)))
    print(f"PALISADE_DIFFERENTIAL_SEED={seed}")
    return seed


async def ask(session: ClientSession, request: Request) -> Answer:
    path, body = request
    async with session.post(path, json=body) as answer:
        return answer_of(path, answer.status, await answer.text())


async def ask_both(theirs: ClientSession, ours: ClientSession, request: Request) -> tuple[Answer, Answer]:
    return await asyncio.gather(ask(theirs, request), ask(ours, request))


async def test_random_requests_get_equal_answers(theirs: ClientSession, ours: ClientSession) -> None:
    seed = seed_of_run()
    operations, asked, ends = Operations(Random(seed)), 0, time.monotonic() + RUN_S
    statuses: dict[int, int] = {}
    while time.monotonic() < ends or asked < REQUESTS_MIN:
        request = operations.next()
        expected, found = await ask_both(theirs, ours, request)
        asked += 1
        shown = f"seed {seed}, request {asked}: {request[0]} {json.dumps(request[1])}"
        assert found == expected, f"{shown}\netcd: {expected}\nours: {found}"
        operations.revision = max(operations.revision, expected.revision)
        statuses[expected.status] = statuses.get(expected.status, 0) + 1
    print(f"{asked} requests, revision {operations.revision}, statuses {statuses}")
    assert statuses[200] > asked / 2


async def events_until(session: ClientSession, create: dict[str, Any], sentinel: str) -> list[Any]:
    """The first answer and all events, up to the one of the key `sentinel`."""
    seen: list[Any] = []
    body = json.dumps({"create_request": create}).encode()
    async with asyncio.timeout(30), session.post("/v3/watch", data=body) as answer:
        async for line in answer.content:
            result = without_own(json.loads(line))["result"]
            if "events" not in result:
                result.pop("header")
                seen.append(result)
            for event in result.get("events", ()):
                seen.append(event)
                if event["kv"]["key"] == sentinel:
                    return seen
            if result.get("canceled"):
                return seen
    return seen


async def test_watches_see_equal_events(theirs: ClientSession, ours: ClientSession) -> None:
    """From the past, the present and the future; keys, ranges, filters, previous values; compacted ones are refused."""
    seed = seed_of_run()
    random = Random(seed)
    operations = Operations(random)
    sentinel = encoded("zzz")
    whole = {"key": encoded("a"), "range_end": encoded("\0")}
    watches: list[dict[str, Any]] = [
        whole,
        whole | {"prev_kv": True},
        whole | {"filters": ["NOPUT"], "start_revision": 40, "range_end": "AA=="},
        whole | {"start_revision": 30, "prev_kv": True},
        whole | {"start_revision": 1},
        whole | {"start_revision": -1},
        whole | {"start_revision": 400},
        {"key": encoded("b"), "range_end": encoded("zzzz"), "start_revision": 60},
        {"key": encoded("z"), "range_end": encoded("zzzz"), "filters": ["NODELETE"]},
        {"key": encoded("c"), "range_end": encoded("c")},
        {"key": encoded("c"), "range_end": encoded("b")},
    ]
    for watch in watches:
        if "filters" in watch and watch["filters"] == ["NOPUT"]:
            watch.pop("filters")

    async def write(count: int) -> None:
        for _ in range(count):
            request = random.choice([operations._put, operations._delete, operations._txn])()
            expected, found = await ask_both(theirs, ours, request)
            assert found == expected
            operations.revision = max(operations.revision, expected.revision)

    await write(60)
    await ask_both(theirs, ours, ("/v3/kv/compaction", {"revision": 10}))
    runs = [
        asyncio.gather(events_until(theirs, watch, sentinel), events_until(ours, watch, sentinel)) for watch in watches
    ]
    running = [asyncio.ensure_future(run) for run in runs]
    await asyncio.sleep(0.5)
    while operations.revision < 450:
        await write(10)
    await ask_both(theirs, ours, ("/v3/kv/put", {"key": sentinel, "value": ""}))
    for watch, run in zip(watches, running, strict=True):
        expected, found = await run
        assert found == expected, f"seed {seed}, watch {watch}"


async def test_leases_expire_with_their_keys_in_one_revision(theirs: ClientSession, ours: ClientSession) -> None:
    for request in (
        ("/v3/lease/grant", {"ID": 7, "TTL": 600}),
        ("/v3/kv/put", {"key": encoded("a"), "lease": 7}),
        ("/v3/kv/put", {"key": encoded("b"), "lease": 7}),
        ("/v3/kv/put", {"key": encoded("c"), "lease": 7}),
        ("/v3/kv/put", {"key": encoded("c")}),
        ("/v3/lease/timetolive", {"ID": 7, "keys": True}),
        ("/v3/lease/revoke", {"ID": 7}),
        ("/v3/kv/range", {"key": encoded("a"), "range_end": encoded("z")}),
        ("/v3/lease/keepalive", {"ID": 7}),
        ("/v3/lease/revoke", {"ID": 7}),
        ("/v3/lease/grant", {"ID": 8, "TTL": 1}),
        ("/v3/lease/grant", {"ID": 8, "TTL": 100}),
        ("/v3/lease/leases", {}),
    ):
        expected, found = await ask_both(theirs, ours, request)
        assert found == expected, request
