"""A vault on a simulated disk: what takes time, what is refused, and what a loss of power leaves of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from palisade.vault.errors import VaultDamaged, VaultUnusable
from palisade.vault.fence_page import FenceState
from palisade.vault.tables import VaultTable
from palisade.vault.vault import Vault
from tests.sim.disk import Disk
from tests.sim.vault_disk import Found, Killed, Loss, Trouble
from tests.sim.vault_home import SimVaultHome
from tests.support.machine import FSYNC_S
from tests.support.simulation import Simulation
from tests.support.vault_feed import follow, full, items_of
from tests.support.virtual_loop import VirtualLoop

WRITES = 12


class Ground:
    """A machine with a vault, and a process that has it open."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.recorded: list[str] = []
        self.disk = Disk(self.simulation, "n1", count=self.recorded.append)
        self.driver = full([(b"a", b"%d" % number) for number in range(WRITES)])
        self.states = {0: list[Any]()}
        self.vault = self.start()

    def begin(self) -> Any:
        """The process of the next start."""
        process: Any = self.simulation.process("n1", loop=VirtualLoop)
        self.process = process
        self.disk.hand.is_dead = lambda: process.dead
        return process

    def start(self) -> Vault:
        """Raises VaultError."""
        process = self.begin()
        self.vault = self.simulation.run(process, SimVaultHome(self.disk, process.now).open())
        return self.vault

    def do(self, work: Callable[[], object]) -> float:
        """In a turn of the process. Returns how long it took. Raises its error."""
        before = self.simulation.now

        async def ask() -> None:
            work()

        self.simulation.run(self.process, ask())
        return self.simulation.now - before

    def apply(self, last: int) -> None:
        """One revision a commit."""
        for revision in range(self.vault.revision + 1, last + 1):
            self.do(lambda revision=revision: follow(self.vault, self.driver, revision))
            self.states[revision] = items_of(self.vault)

    def lose_power(self) -> None:
        self.process.kill()
        self.disk.killed(power=True)


def test_commit_takes_no_time_and_sync_takes_its_time() -> None:
    ground = Ground()
    ground.disk.fsync_s = 1.0
    assert 0.5 <= ground.do(lambda: follow(ground.vault, ground.driver, 2)) <= 2.0
    ground.disk.fsync_s = FSYNC_S
    assert ground.do(lambda: follow(ground.vault, ground.driver, 3)) == 0.0
    ground.disk.fsync_s = 1.0
    assert 0.5 <= ground.do(ground.vault.close) <= 2.0


def test_commits_on_a_slow_disk_are_visible_before_their_writer_continues() -> None:
    ground = Ground()
    ground.apply(2)
    ground.disk.fsync_s = 1.0
    seen: list[tuple[int, int]] = []

    async def look() -> None:
        while True:
            await asyncio.sleep(0.001)
            seen.append((Vault(ground.disk.backend).revision, ground.vault.revision))

    ground.simulation.process("reader", loop=VirtualLoop).start(look())
    ground.apply(WRITES)
    assert "vault disk: commit-waits" in ground.recorded
    assert {committed - known for committed, known in seen} == {0, 1}


@pytest.mark.parametrize(
    ("trouble", "recorded"), [("full", {Trouble.NO_ROOM}), ("bad_vault", {Trouble.COMMIT_FAILS, Trouble.USELESS})]
)
def test_commit_that_is_refused_changes_nothing(trouble: str, recorded: set[Trouble]) -> None:
    ground = Ground()
    ground.apply(2)
    setattr(ground.disk, trouble, True)
    refused = 0
    for _ in range(8):
        before = ground.vault.revision
        try:
            ground.apply(before + 1)
        except VaultUnusable:
            refused += 1
            assert items_of(ground.vault) == ground.states[before]
    assert refused
    assert {f"vault disk: {each.value}" for each in recorded} & {*ground.recorded}


def test_file_with_a_failed_head_refuses_commits_until_reopened() -> None:
    ground = Ground()
    ground.apply(2)
    ground.disk.bad_vault = True
    while not ground.disk.backend._useless:
        with pytest.raises(VaultUnusable):
            ground.apply(WRITES)
    ground.disk.bad_vault = False
    with pytest.raises(VaultUnusable):
        ground.apply(WRITES)
    ground.process.kill()
    ground.start()
    ground.apply(WRITES)
    assert items_of(ground.vault) == ground.states[WRITES]


def test_process_killed_during_a_disk_wait_writes_nothing_more() -> None:
    ground = Ground()
    ground.apply(2)
    old, vault, disk, ended = ground.process, ground.vault, ground.disk, list[str]()

    def die() -> None:
        old.kill()
        disk.hand.is_dead = lambda: False  # of the next start

    def write() -> None:
        try:
            disk._stand_still(1.0)
        except Killed:
            ended.append("killed")
        try:
            follow(vault, ground.driver, 3)
        except Killed:
            ended.append("writes nothing")

    old.loop.call_soon(write)
    ground.simulation.after(0.5, die)
    ground.simulation.run_for(2.0)
    assert ended == ["killed", "writes nothing"]
    assert Vault(disk.backend).revision == 2


def test_vault_that_is_closed_is_fenced_and_synced_and_one_that_can_not_be_synced_stays_marked() -> None:
    ground = Ground()
    ground.apply(3)
    page = ground.vault.page
    assert page is not None
    page.serve(1 << 60, 1)
    ground.disk.full = True
    with pytest.raises(VaultUnusable):
        ground.do(ground.vault.close)
    assert page.fence.state is FenceState.FENCED
    assert ground.disk.backend.boot is not None
    ground.disk.full = False
    ground.start()
    ground.apply(4)
    ground.do(ground.vault.close)
    assert ground.disk.backend.boot is None
    ground.lose_power()
    assert items_of(ground.start()) == ground.states[4]


def test_vault_after_power_loss_is_at_a_commit_or_refused() -> None:
    found, refused = set[str](), list[str]()
    for seed in range(150):
        ground = Ground(seed)
        ground.apply(WRITES)
        ground.lose_power()
        try:
            vault = ground.start()
        except VaultDamaged as error:
            refused.append(str(error))
        else:
            assert items_of(vault) == ground.states[vault.revision]
            assert not ground.disk.backend.suspect
        found.update(ground.recorded)
    assert all("palisade vault reset" in each for each in refused)
    assert {f"vault without power: {loss.value}" for loss in Loss} <= found
    assert {f"vault of another boot: {each.value}" for each in Found} <= found
    assert 0 < len(refused) < 150


def test_start_that_dies_while_it_verifies_leaves_the_vault_suspect() -> None:
    ground = Ground(2)
    ground.apply(WRITES)
    ground.process.kill()
    ground.disk.backend.boot = b"a boot that was before"
    ground.disk.fsync_s = 1.0
    process = ground.begin()
    process.start(SimVaultHome(ground.disk, process.now).open())
    ground.simulation.run_for(0.1)
    process.kill()
    assert ground.disk.backend.suspect


def test_flush_batch_is_not_interleaved_with_other_commits() -> None:
    ground = Ground()

    async def pause() -> None:
        with pytest.raises(RuntimeError, match="in slices"):
            ground.disk.backend.commit({VaultTable.CONFIG: {b"a": b"b"}})

    ground.simulation.run(ground.process, ground.disk.backend.commit_in_slices(lambda: iter([{}]), pause))
