"""What the one survivor of a lost majority becomes: its log with the break behind it, in a new generation.

Of any store and any journal: `quorum_recovery.py` has the folders, the simulator its disks. What is decided and written
of the group is `raftgroup/quorum_loss.py`; here the state machine's part is added: the command that raises the
generation of its state, so that old vaults notice, and the record that makes the first leader wait for leases of before
(`fencing/inherited_leases.py`).
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
    """`revision`: of the state, behind which the log may have more. `generation`: of the history that begins with it.
    `commands`: what the state machine is told behind the log."""

    survivor: Survivor
    revision: int
    generation: int
    commands: tuple[bytes, ...]


def foresee(journal: Journal, store: AppliedStore, random: Random) -> Break:
    """What going on alone would come to. Raises DataDirectoryError, MembershipRefused, StoreCorrupt; nothing is changed
    in any case."""
    state = StoreState(store)
    survivor = survey(journal, store.applied, random)
    generation = max(survivor.generation, state.lineage.generation) + 1
    commands = told_of_the_break(SystemRecords(store, state), generation)
    return Break(survivor, state.revision, generation, commands)


async def go_on_alone(journal: Journal, at: Break) -> None:
    """On disk when this returns."""
    await force_new_cluster(journal, at.survivor, at.generation, NO_TIME, at.commands)


def told_of_the_break(records: SystemRecords, generation: int) -> tuple[bytes, ...]:
    """The commands behind the survivor's log: its state is of `generation`, and leases may be out that it has never
    heard of. `records`: as far as they are applied. Raises StoreCorrupt."""
    commands: tuple[Command, ...] = (BeginGeneration(generation), waiting_for_former(records, generation))
    return tuple(encode_command(command) for command in commands)
