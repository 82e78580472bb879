"""All scenarios by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.faults import breaks, links, removals, restarts
from tests.faults.ground import Ground

HOSTS = ("n1", "n2", "n3", "f1")
SCENARIOS: dict[str, Callable[[Ground], Awaitable[None]]] = {
    each.__name__: each for each in (*links.SCENARIOS, *breaks.SCENARIOS, *removals.SCENARIOS, *restarts.SCENARIOS)
}
