"""The survivor of a lost majority waits for leases that it has no record of (F3, R7).

In the simulator: a follower is isolated before any holder is registered, the two others grant each other leases and are
lost, and the follower becomes the cluster as by `palisade recover-quorum`. Readers of the vault of a lost node may
continue until its lease ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random

import pytest

import palisade.node.survivor_store
from palisade.fencing.timing import FenceTiming
from palisade.metastore.requests import Put, SystemWrite
from palisade.node.config import FenceTimes
from palisade.node.fencing import member_fencing
from palisade.node.survivor_store import continue_alone, preview
from palisade.vault.errors import ReadRefused
from palisade.vault.reader import VaultReader
from tests.sim.disk import SimStore
from tests.sim.scripted import Script, led

Patch = pytest.MonkeyPatch
KEY = b"palisade/test"
USUAL, LONGER = FenceTimes(), FenceTimes(lease_s=6.0, margin_s=0.05)


class Lost:
    """The majority is about to be lost: `read` serves, and `survivor` has little more than the initial log."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.survivor, self.read = script.others
        script.run_until(lambda: self.survivor.store is not None and self.survivor.store.revision > 0, within_s=1)
        script.world.network.isolate(self.survivor.id)
        script.run_until(lambda: self.read.part.holder is not None and self.read.part.holder.serves, within_s=10)
        script.write(Put(KEY, b"old"))
        script.run_until(lambda: self.value_read() == b"old", within_s=5)
        assert not self.holders()

    def holders(self) -> list[str]:
        return [each.name for each in self.survivor.store.system.with_prefix("holder/") if each.value]

    def value_read(self) -> bytes | None:
        """By a process on the same machine, whether the node runs or not. None: refused."""
        host, process = self.read, self.script.process(self.read)
        if host.vault is None:
            return None
        reader = VaultReader.over(host.vault, clock_ns=lambda: int(process.now() * 1e9), wait_s=0)
        try:
            return reader.get(KEY)
        except ReadRefused:
            return None

    def write(self, value: bytes) -> float:
        return self.script.write(Put(KEY, value), at=self.survivor)

    def recover(self) -> None:
        world, survivor = self.script.world, self.survivor
        for host in world.members:
            host.kill()
        world.checkers = []  # another history begins, which lacks committed entries
        at = preview(survivor.disk.journal, SimStore(survivor.disk), Random(1))
        admin = self.script.simulation.process("administrator")
        self.script.simulation.run(admin, continue_alone(survivor.disk.journal, at))
        survivor.disk.put_vault_aside()
        world.network.heal()
        survivor.start()
        self.script.run_until(lambda: survivor.group is not None and survivor.group.leads, within_s=5)


Recovered = Callable[..., Lost]


@pytest.fixture
def recovered() -> Iterator[Recovered]:
    """A cluster of the survivor alone, while the vault of a lost node is still being read."""
    with ExitStack() as stack:

        def make(fences: FenceTimes = USUAL) -> Lost:
            lost = Lost(stack.enter_context(led(fences=fences)))
            lost.recover()
            assert lost.value_read() == b"old"
            return lost

        yield make


def test_write_of_the_survivor_waits_until_no_node_serves_the_old_value(recovered: Recovered) -> None:
    lost = recovered()
    assert lost.write(b"new") < FenceTiming().proceed_s() + 0.1
    assert lost.value_read() is None
    assert lost.write(b"newer") < 0.1
    lost.script.run_for(1.0)
    assert lost.holders() == [f"holder/{lost.survivor.id}"]
    assert lost.survivor.store.lineage.generation == 2


def test_planted_missing_record_lets_an_old_value_be_read(recovered: Recovered, monkeypatch: Patch) -> None:
    """Proves the test above."""
    nobody = SystemWrite((), (("nobody", b""),))
    monkeypatch.setattr(palisade.node.survivor_store, "waiting_for_former", lambda records, generation: nobody)
    lost = recovered()
    lost.write(b"new")
    assert lost.value_read() == b"old"


def test_inherited_leases_count_as_long_as_the_leaders_own(recovered: Recovered) -> None:
    """All nodes are configured with the same times, even if the survivor has no record of any holder."""
    lost = recovered(LONGER)
    assert lost.write(b"new") < FenceTiming(LONGER.lease_s, margin_s=LONGER.margin_s).proceed_s() + 0.1
    assert lost.value_read() is None


def test_planted_record_alone_counts_inherited_leases_too_short(recovered: Recovered, monkeypatch: Patch) -> None:
    """Proves the test above."""
    monkeypatch.setattr(member_fencing, "counted_by", lambda timing, registered: registered)
    lost = recovered(LONGER)
    lost.write(b"new")
    assert lost.value_read() == b"old"
