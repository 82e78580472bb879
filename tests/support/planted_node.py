"""`python -m tests.support.planted_node FAULT MODULE ...`: runs MODULE (a node) with a fault planted in its recovery.

It proves that the checks of the scenarios see what they are for.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from typing import Any

import recovery.eviction
import recovery.recover
from recovery.decide import Case, Join, Snapshot, SnapshotReason
from recovery.recover import Recovery
from vault.vault import PLAN_DUE, Vault


def always_join() -> None:
    recovery.recover.decide = lambda *_: Join(Case.A)


def always_snapshot() -> None:
    """At the first look, where the table would say something else."""
    decide = recovery.recover.decide
    looked: list[bool] = []

    def planted(*arguments: Any) -> Any:
        looked.append(True)
        return Snapshot(SnapshotReason.COST) if len(looked) == 1 else decide(*arguments)

    recovery.recover.decide = planted


def difference_untold() -> None:
    """What the system behind the seed does: a running node takes the snapshot, and its components hear nothing."""

    async def skip(self: Recovery) -> None:
        self._vault.forget_difference()

    Recovery._tell_difference = skip  # type: ignore[method-assign]


def plan_forgotten() -> None:
    """The stored plan of an eviction is made anew from what is there, as if nothing could be half there."""
    plan = Vault.plan

    def due(self: Vault) -> tuple[bytes, int] | None:
        return None if plan(self) is None else (PLAN_DUE, 0)

    current = recovery.eviction._current_plan

    async def anew(vault: Vault, resources: Any) -> Any:
        Vault.plan = due  # type: ignore[method-assign]
        try:
            return await current(vault, resources)
        finally:
            Vault.plan = plan  # type: ignore[method-assign]

    recovery.eviction._current_plan = anew


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault for fault in (always_join, always_snapshot, difference_untold, plan_forgotten)
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    module = sys.argv[2]
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__")
