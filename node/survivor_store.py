"""The data of the survivor of a lost majority: its log followed by the break of the history, in a new generation.

Works on any store and any journal: `quorum_recovery.py` provides folders, the simulator its disks.
`raftgroup/quorum_loss.py` decides and writes the group's part; this module adds the state machine's part: the command
that raises the generation of its state, by which old vaults detect the break, and the record that makes the first
leader wait for earlier leases (`fencing/inherited_leases.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from palisade.metastore.command_codec import encode_command
from palisade.metastore.ordered_map import OrderedMap
from palisade.metastore.requests import BeginGeneration, Command
from palisade.metastore.state import StoreState
from palisade.metastore.system_records import SystemRecords
from palisade.node.fencing.inherited_leases import waiting_for_former
from palisade.raftgroup.ports import Journal, Random
from palisade.raftgroup.quorum_loss import Survivor, force_new_cluster, survey

NO_TIME = [0, 0]
"""A stamp that moves neither clock of the store."""


class AppliedStore(OrderedMap, Protocol):
    @property
    def applied(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Break:
    """`revision`: of the state, after which the log may have further entries. `generation`: of the history that begins
    with the break. `commands`: appended to the log for the state machine."""

    survivor: Survivor
    revision: int
    generation: int
    commands: tuple[bytes, ...]


def preview(journal: Journal, store: AppliedStore, random: Random) -> Break:
    """What continuing alone would change. Raises DataDirectoryError, MembershipRefused, StoreCorrupt; changes nothing
    in any case."""
    state = StoreState(store)
    survivor = survey(journal, store.applied, random)
    generation = max(survivor.generation, state.lineage.generation) + 1
    commands = recovery_commands(SystemRecords(store, state), generation)
    return Break(survivor, state.revision, generation, commands)


async def continue_alone(journal: Journal, at: Break) -> None:
    """On disk when this returns."""
    await force_new_cluster(journal, at.survivor, at.generation, NO_TIME, at.commands)


def recovery_commands(records: SystemRecords, generation: int) -> tuple[bytes, ...]:
    """The commands appended to the survivor's log: its state is of `generation`, and leases may be held that it has no
    record of. `records`: those that are applied. Raises StoreCorrupt."""
    commands: tuple[Command, ...] = (BeginGeneration(generation), waiting_for_former(records, generation))
    return tuple(encode_command(command) for command in commands)
