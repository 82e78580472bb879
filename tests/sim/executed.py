"""Histories that are linearizable by construction: each operation takes effect at one moment between its ends.

For the tests of the checker. Some responses get lost: their operation takes effect late, or never.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from tests.sim.linearizability import Op


def executed(
    random: Random,
    many: int,
    ask: Callable[[Random], Any],
    answer: Callable[[Any], Any],
    *,
    clients: int = 8,
    lost: float = 0.0,
) -> list[Op]:
    """`answer` executes a request; the client gets its return value, unless that gets lost."""
    events: list[tuple[float, int, Callable[[float], None]]] = []
    order, places = count(), count()
    found: list[Op] = []

    def at(when: float, event: Callable[[float], None]) -> None:
        heapq.heappush(events, (when, next(order), event))

    def begin(now: float) -> None:
        if len(found) >= many:
            return
        asked, place, number = ask(random), next(places), len(found)
        gone = random.random() < lost
        found.append(Op(place, None, asked, by=f"c{number % clients}"))
        if not gone or random.random() < 0.5:
            at(now + random.random() * (20 if gone else 1), lambda then: effect(then, number, gone))
        if gone:
            at(now + 2, begin)

    def effect(now: float, number: int, gone: bool) -> None:
        answered = answer(found[number].asked)
        if not gone:
            at(now + random.random(), lambda then: end(then, number, answered))

    def end(now: float, number: int, answered: Any) -> None:
        op = found[number]
        found[number] = Op(op.began, next(places), op.asked, answered, op.by)
        at(now + random.random() * 0.2, begin)

    for _ in range(clients):
        at(random.random(), begin)
    while events:
        now, _, event = heapq.heappop(events)
        event(now)
    return found
