"""All scenarios by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.faults import breaks, journals, links, removals, restarts
from tests.faults.ground import Ground

HOSTS = ("n1", "n2", "n3", "f1")
SCENARIOS: dict[str, Callable[[Ground], Awaitable[None]]] = {
    each.__name__: each for module in (links, breaks, removals, restarts, journals) for each in module.SCENARIOS
}
