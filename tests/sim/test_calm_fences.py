"""Without faults no node is fenced, and no write waits for a lease to expire: also while a region becomes strict or
eventual, and each entry mixes strict and eventual writes."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable
from typing import Any

import pytest

from palisade.metastore.requests import DeleteRange, Put
from palisade.node.fencing.lease_client import LeaseClient
from palisade.vault.regions import Mode, Policy, Region, pack_region, region_key
from palisade.vault.staging import VaultStaging
from tests.sim.ambient import PRODUCTION_PACES_EVERY
from tests.sim.scripted import Script, scripted
from tests.support.simulation import Process

Patch = pytest.MonkeyPatch
WRITES = 12
NO_WAIT_S = 0.2
"""Less than any lease lasts after its last renewal, and more than the node takes to look at its vault again."""
SEEDS = [PRODUCTION_PACES_EVERY * number for number in range(1, 5)]
"""With the polling intervals of production."""
KINDS = (Mode.STRICT, Mode.EVENTUAL, Mode.STRICT, None)


class Fenced(AssertionError):
    """A node that has served once serves no more."""


class Calm:
    """A cluster with writes at every node. `longest`: the longest wait of a change for its release at the leader."""

    def __init__(self, script: Script) -> None:
        self.script, self.longest = script, 0.0
        script.make_strict("t")
        self._checked, script.simulation.after_turn = script.simulation.after_turn, self._turned

    def _turned(self, process: Process) -> None:
        self._checked(process)
        host = self.script.world.owners.get(process)
        if host is None or host.part is None:
            return
        if not host.part.holder.serves:
            raise Fenced(f"{host.id}: {host.part.holder.why}")
        core = host.node.fencing.lease_server.core
        if core.leads:
            self.longest = max([self.longest, *(process.now() - wait.since for wait in core.waits(process.now(), 1))])

    def write_and_change_regions(self) -> None:
        for kind in KINDS:
            region = Region("s", b"s/", kind or Mode.STRICT, Policy.FAIL_CLOSED)
            change = Put(region_key("s"), pack_region(region)) if kind is not None else DeleteRange(region_key("s"))
            self._end([self.script.begin(change), *self._writes(b"first")])
            for number in range(WRITES):
                self._end(self._writes(b"%d" % number))

    def _writes(self, value: bytes) -> list[Task[Any]]:
        """Strict and eventual ones at every member, in the same turn."""
        script, keys = self.script, (b"t/a", b"s/a", b"e/a")
        return [script.begin(Put(key, value), host) for host in script.world.members for key in keys]

    def _end(self, tasks: list[Task[Any]]) -> None:
        self.script.run_until(lambda: all(task.done() for task in tasks), within_s=5)
        self.script.run_for(0.02)
        for task in tasks:
            task.result()


@pytest.mark.parametrize("seed", SEEDS)
def test_writes_and_changes_of_regions_fence_no_node(seed: int) -> None:
    """Nodes were fenced within 0.2 s, since RR had passed the revisions staged to them (regression)."""
    with scripted(seed) as script:
        calm = Calm(script)
        calm.write_and_change_regions()
        assert calm.longest < NO_WAIT_S


def stages_without_an_answer(patch: Patch) -> None:
    patch.setattr(LeaseClient, "_mark", lambda holder, mark: None)


def stages_that_fail(patch: Patch) -> None:
    def fails(staging: VaultStaging, rows: Any, **options: Any) -> list[Any]:
        raise OSError("no room")

    patch.setattr(VaultStaging, "stage", fails)


@pytest.mark.parametrize("fault", [stages_without_an_answer, stages_that_fail])
def test_planted_fault_fences_a_node_or_delays_a_write(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    with scripted(SEEDS[0]) as script:
        calm = Calm(script)
        fault(monkeypatch)
        try:
            calm.write_and_change_regions()
        except AssertionError:
            return
        assert calm.longest >= NO_WAIT_S
