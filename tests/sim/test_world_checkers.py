"""The checkers that look at nodes, each proved by a fault that is planted in production code (issue 5).

Each plant names the run that shows it, a scenario and a seed; the checker that sees it is named by what is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fencing.registry import Registry
from metastore.machine import MetaStore
from node.catalog.store import NodeStore
from raftgroup.journal import MemoryJournal
from tests.sim.faults import Fault, Kind
from tests.sim.run import run_seed
from tests.sim.world import Settings
from vault.vault import Vault

Patch = pytest.MonkeyPatch


def releases_at_once(patch: Patch) -> None:
    """No holder is waited for."""
    patch.setattr(Registry, "blocks", lambda *_: False)
    patch.setattr(Registry, "safe_up_to", lambda self, now, latest: latest)


def procedures_do_not_wait(patch: Patch) -> None:
    """They go on from PREPARED as soon as that is committed."""

    async def at_once(self: NodeStore, revision: int) -> None:
        return

    patch.setattr(NodeStore, "released", at_once)


def one_replica_differs(patch: Patch) -> None:
    """It skips a command."""
    apply = MetaStore.apply

    def forgets(self: MetaStore, index: int, term: int, stamp: Any, commands: Any) -> Any:
        if index == 60 and self._tables._name == "n2":  # type: ignore[attr-defined]
            return apply(self, index, term, stamp, []) + [b""] * len(commands)
        return apply(self, index, term, stamp, commands)

    patch.setattr(MetaStore, "apply", forgets)


def a_vault_goes_back(patch: Patch) -> None:
    """What it is after a restart is an older revision."""
    opened = Vault.__init__

    def older(self: Vault, *arguments: Any, **options: Any) -> None:
        opened(self, *arguments, **options)
        if self.position.revision > 5:
            self.position = replace(self.position, revision=self.position.revision - 1)

    patch.setattr(Vault, "__init__", older)


def a_sync_that_does_nothing(patch: Patch) -> None:
    """The journal says that it is on disk, and it is not."""

    async def lies(self: MemoryJournal) -> None:
        changes = self._state.take()
        self._state.landed(changes)

    patch.setattr(MemoryJournal, "sync", lies)


CALM = ()
PLANTS: list[tuple[Callable[[Patch], None], str, tuple[Fault, ...]]] = [
    (releases_at_once, "lease safety", CALM),
    (procedures_do_not_wait, "procedures", (Fault(2.0, Kind.ISOLATE, "f1", "n1", 10.0),)),
    (one_replica_differs, "state machine equality", CALM),
    (a_vault_goes_back, "never back", (Fault(6.0, Kind.CRASH, "n2", "n1", 0.5),)),
    (a_sync_that_does_nothing, "words on disk", CALM),
]


@pytest.mark.parametrize(("plant", "seen_by", "plan"), PLANTS, ids=[plant.__name__ for plant, _, _ in PLANTS])
def test_a_planted_fault_is_seen(
    plant: Callable[[Patch], None], seen_by: str, plan: tuple[Fault, ...], monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    outcome = run_seed(3, "calm", plan, Settings())
    assert outcome.violation.startswith(seen_by), outcome.violation or "nothing was seen"
