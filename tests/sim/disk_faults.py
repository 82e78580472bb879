"""Faults of the disk of a node: full, failing, damaged, with another vault than the node's own."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from palisade.recovery.decision import RefusalReason
from palisade.vault.errors import VaultDamaged, VaultDiverged
from tests.sim import foreign
from tests.sim.damage import Part, damaged, is_damage
from tests.sim.faults import Fault, Kind
from tests.sim.node import Host
from tests.sim.tolerance import is_failing, is_full, is_refusal
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.cluster_nemesis import ClusterNemesis


def full(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    disk = host.disk
    disk.full = host.was_full = True

    def room() -> None:
        disk.full = False

    nemesis.later(fault.for_s, room)


def failing(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    disk = host.disk
    disk.failing, disk.bad_vault, host.was_failing = fault.amount < 0.5, True, True

    def works() -> None:
        disk.failing = disk.bad_vault = False

    nemesis.later(fault.for_s, works)


def torn_vault(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    host.kill(power=True)
    if host.disk.vault_lineage is not None:
        nemesis.struck(fault)
    host.disk.put_vault_aside()
    nemesis.start_after(fault.for_s, host)


def foreign_vault(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    host.kill()
    if foreign.make_foreign(host, fault.amount):
        nemesis.struck(fault)
    nemesis.start_after(fault.for_s, host)


def damage(nemesis: ClusterNemesis, fault: Fault, host: Host) -> None:
    """Only a vault of a follower, and one member at a time: as with a lost disk."""
    chance = Random(f"damage {nemesis.world.seed} {fault}")
    part = Part.VAULT if host.follows else chance.choice(list(Part))
    if part is not Part.VAULT and not nemesis.may_lose_disk(host):
        return
    host.kill(power=True)
    done = host.disk.damage = damaged(host.disk, part, chance)
    if done is not None:
        nemesis.struck(fault)
        nemesis.world.note(host.id, f"damage of the {part.value}: {done.what}")
    nemesis.start_after(fault.for_s, host)


ACTS = {
    Kind.FULL_DISK: full, Kind.FAILING_DISK: failing, Kind.TORN_VAULT: torn_vault, Kind.FOREIGN_VAULT: foreign_vault,
    Kind.DAMAGE: damage,
}  # fmt: skip


def explained(world: World, host: Host, error: BaseException) -> bool:
    """Whether a node may stop itself for that: its disk is full, failing, damaged, or not its own."""
    if host.foreign is not None and is_refusal(error, host.foreign):
        return True
    if host.foreign is RefusalReason.DIVERGED and isinstance(error, VaultDiverged):
        return True  # If its revision is compacted, that is detected only after it (strange 24).
    if (host.disk.full or host.was_full) and is_full(error):
        world.count(f"fault: {Kind.FULL_DISK.value}")
        return True
    if (host.disk.bad_vault or host.was_failing) and is_failing(error):
        world.count(f"fault: {Kind.FAILING_DISK.value}")
        return True
    if host.disk.backend.torn and isinstance(error, VaultDamaged):
        return True
    return host.disk.damage is not None and is_damage(error)


def remedied(world: World, host: Host) -> None:
    """The administrator's reaction when a node has refused its disk: the remedy in its error."""
    disk, error = host.disk, host.ended
    foreign.reset(host)
    if disk.backend.torn and isinstance(error, VaultDamaged):
        disk.put_vault_aside()
    elif disk.damage is not None and is_damage(error):
        part = disk.damage.part
        world.count(f"damage refused: {part.value}")
        world.note(host.id, f"refuses its {part.value}: {type(error).__name__}")
        if part is Part.VAULT:
            disk.put_vault_aside()
        else:
            host.wipe()
