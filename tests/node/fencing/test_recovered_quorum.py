"""The survivor of a lost majority waits for leases that it has no record of (F3, R7).

In the wired world: n2 is isolated before any holder is registered, n1 grants n3 a lease, n1 and n3 are lost, and n2
becomes the cluster as by `palisade recover-quorum`. Readers of the vault of n3 may continue until its lease ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

import palisade.node.survivor_store
from palisade.fencing.timing import FenceTiming
from palisade.metastore.requests import Put, SystemWrite
from palisade.node.fencing import member_fencing as member
from palisade.node.survivor_store import recovery_commands
from palisade.service.callers import THIS_NODE
from palisade.vault.errors import ReadRefused
from palisade.vault.fence_page import FENCE_BYTES
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.reader import VaultReader
from tests.support import wired_world
from tests.support.wired_parts import Entry
from tests.support.wired_world import Cluster

Patch = pytest.MonkeyPatch
KEY = b"palisade/test"
LONGER = replace(wired_world.TIMING, fence_s=6.0)


@pytest.fixture(autouse=True)
def patience(monkeypatch: Patch) -> None:
    """Writes have enough time for every wait here."""
    monkeypatch.setattr(wired_world, "DEADLINE_S", 20.0)


class Lost(Cluster):
    """The majority is about to be lost: n3 serves, and n2 has little more than the initial log."""

    def __init__(self) -> None:
        super().__init__(1, calm=True)
        self.simulation.run_until(lambda: self.nodes["n2"].applied > 0, within_s=1)
        self.cut.add("n2")
        self.simulation.run_until(lambda: self.nodes["n3"].holder.serves, within_s=5)
        self.write("n1", b"old")
        self.simulation.run_until(lambda: self.read_at_n3() == b"old", within_s=1)
        assert not list(self.nodes["n2"].store.system.with_prefix("holder/"))

    def write(self, name: str, value: bytes) -> float:
        """The time until the write was acknowledged."""
        at, before = self.nodes[name], self.now
        self.simulation.run(at.process, at.key_values.write(Put(KEY, value), caller=THIS_NODE), within_s=20)
        return self.now - before

    def read_at_n3(self) -> bytes | None:
        """By a process on the same machine, whether n3 runs or not. None: refused."""
        lost = self.nodes["n3"]
        reader = VaultReader.over(lost.vault, clock_ns=lambda: int(lost.process.now() * 1e9), wait_s=0)
        try:
            return reader.get(KEY)
        except ReadRefused:
            return None

    def recover(self) -> None:
        for each in self.nodes.values():
            each.process.kill()
        survivor = self.nodes["n2"]
        commands = recovery_commands(survivor.store.system, 2)
        del self.log[survivor.applied :]
        self.term += 1
        self.log.append(Entry(len(self.log) + 1, self.term, [0, 0], commands, "n2"))
        self.durable["n2"] = survivor.applied
        self.cut, self.leader, self.votes_at = set(), None, self.now
        self.incarnations = dict.fromkeys(self.names, 0)
        self._boot("n2", MemoryBackend(), bytearray(FENCE_BYTES))
        self.elect("n2")


Recovered = Callable[[], Lost]


@pytest.fixture
def recovered() -> Iterator[Recovered]:
    """Starts a cluster of n2 alone while n3 is still being read."""
    made: list[Lost] = []

    def make() -> Lost:
        made.append(Lost())
        made[-1].recover()
        assert made[-1].read_at_n3() == b"old"
        return made[-1]

    yield make
    for each in made:
        each.simulation.close()


def test_write_of_the_survivor_waits_until_no_node_serves_the_old_value(recovered: Recovered) -> None:
    lost = recovered()
    assert lost.write("n2", b"new") < FenceTiming().proceed_s() + 0.1
    assert lost.read_at_n3() is None
    assert lost.write("n2", b"newer") < 0.1
    lost.simulation.run_for(1.0)
    assert [each.name for each in lost.nodes["n2"].store.system.with_prefix("holder/") if each.value] == ["holder/n2"]
    assert lost.nodes["n2"].store.lineage.generation == 2
    lost.check()


def test_planted_missing_record_lets_an_old_value_be_read(recovered: Recovered, monkeypatch: Patch) -> None:
    """Proves the test above."""
    nobody = SystemWrite((), (("nobody", b""),))
    monkeypatch.setattr(palisade.node.survivor_store, "waiting_for_former", lambda records, generation: nobody)
    lost = recovered()
    lost.write("n2", b"new")
    assert lost.read_at_n3() == b"old"


def test_inherited_leases_count_as_long_as_the_leaders_own(recovered: Recovered, monkeypatch: Patch) -> None:
    """All nodes are configured with the same times, even if the survivor has no record of any holder."""
    monkeypatch.setattr(wired_world, "TIMING", LONGER)
    lost = recovered()
    assert lost.write("n2", b"new") < LONGER.proceed_s() + 0.1
    assert lost.read_at_n3() is None


def test_planted_record_alone_counts_inherited_leases_too_short(recovered: Recovered, monkeypatch: Patch) -> None:
    """Proves the test above."""
    monkeypatch.setattr(wired_world, "TIMING", LONGER)
    monkeypatch.setattr(member, "counted_by", lambda timing, registered: registered)
    lost = recovered()
    lost.write("n2", b"new")
    assert lost.read_at_n3() == b"old"
