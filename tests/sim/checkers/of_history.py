"""Checks of what the clients saw, after a run: each property by the name of its file."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.checkers import (
    answers,
    durable,
    exactly_once,
    fenced_reads,
    leases,
    linearizable,
    snapshots,
    watch_contract,
)
from tests.sim.checkers.beyond_the_bound import writes_of
from tests.sim.history import History
from tests.sim.world import Checker

CHECKS: dict[str, Callable[[History], list[str]]] = {
    "durable": durable.check,
    "exactly once": exactly_once.check,
    "snapshots": snapshots.check,
    "answers": answers.check,
    "leases": leases.check,
    "fenced reads": fenced_reads.check,
    "watch contract": watch_contract.check,
    "linearizable": linearizable.check,
}
"""The fast ones first: they name their findings more clearly."""


class OfHistory(Checker):
    name = "history"

    def ended(self) -> None:
        for name, check in (CHECKS | {"leases": self._leases}).items():
            found = check(self.world.history)
            if found:
                shown = "\n".join(found[:5])
                self.world.fail(name, f"{len(found)} violation(s)\n{shown}")

    def _leases(self, history: History) -> list[str]:
        """Beyond the bound a read may return a key of a revoked lease, as any old key."""
        judged = writes_of(history) if self.world.excused else history
        return leases.check(judged, leases.drift_of(self.world.settings.drift))
