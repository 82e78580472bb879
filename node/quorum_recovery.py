"""`palisade recover-quorum`: one stopped node goes on alone, because the majority of its cluster is lost for ever.

What is decided and written is `raftgroup/forced_cluster.py`; here the folder of the node is opened, and the state
machine's part is added: the command that raises the generation of its state, so that old vaults notice, and the record
that makes the first leader wait for leases of before (`fencing/former_holders.py`). Nothing is written without the
confirmation, which is the name of the cluster.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metastore.codec import encode_command
from metastore.requests import BeginGeneration, Command
from metastore.state import State
from metastore.store import LmdbStore
from metastore.system_records import SystemRecords
from node.data_dir import MARKER
from node.fencing.former_holders import waiting_for_former
from node.folder import FolderError, Marker
from raftgroup.forced_cluster import Survivor, force_new_cluster, survey
from raftgroup.lmdb_journal import LmdbJournal
from vault.directory import DATA, VaultDirectory
from vault.errors import VaultUnusable

NO_TIME = [0, 0]
"""A stamp that moves neither clock of the store."""


@dataclass(frozen=True, slots=True)
class QuorumRecovery:
    """`done` False: this is what would be done."""

    survivor: Survivor
    revision: int
    generation: int
    done: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "cluster": self.survivor.cluster,
            "member": self.survivor.member,
            "last_term": self.survivor.last_term,
            "last_index": self.survivor.last_index,
            "revision": self.revision,
            "generation": self.generation,
            "lost_members": list(self.survivor.lost),
            "done": self.done,
        }


async def recover_quorum(data_dir: Path, confirm: str | None) -> QuorumRecovery:
    """Raises FolderError, DataDirectoryError, MembershipRefused, JournalCorrupt, StoreCorrupt, StoreFailed, VaultError.

    Nothing was changed then, but for what the FolderError of a vault says that stayed where it was.
    """
    if not (data_dir / MARKER).is_file():
        raise FolderError(f"{data_dir} is no data folder of a node ({MARKER} is missing): give that of the survivor")
    marker = Marker(data_dir, MARKER).read() or {}
    if confirm is not None and confirm != marker.get("cluster"):
        raise FolderError(
            f"{data_dir} belongs to cluster {marker.get('cluster')!r}, and {confirm!r} was confirmed: nothing was done"
        )
    journal = LmdbJournal(data_dir / "raft")
    try:
        store = LmdbStore(data_dir / "store")
        try:
            applied, state = store.applied, State(store)
            records = SystemRecords(store, state)
        finally:
            store.close()
        survivor = survey(journal, applied, random.SystemRandom())
        generation = max(survivor.generation, state.lineage.generation) + 1
        if confirm is not None:
            vault = _vault_of(data_dir)
            await force_new_cluster(journal, survivor, generation, NO_TIME, told_of_the_break(records, generation))
            _put_aside(vault, survivor.member)
        return QuorumRecovery(survivor, state.revision, generation, confirm is not None)
    finally:
        journal.close()


def told_of_the_break(records: SystemRecords, generation: int) -> list[bytes]:
    """The commands behind the survivor's log: its state is of `generation`, and leases may be out that it has never
    heard of. `records`: as far as they are applied. Raises StoreCorrupt."""
    commands: tuple[Command, ...] = (BeginGeneration(generation), waiting_for_former(records, generation))
    return [encode_command(command) for command in commands]


def _vault_of(data_dir: Path) -> VaultDirectory | None:
    """None where there is none, or a folder in which none was ever made. Raises VaultUnusable for one that is in use:
    before anything is forced."""
    vault = VaultDirectory(data_dir / "vault")
    if not (vault.path / DATA).is_file():
        return None
    vault.claim()
    vault.release()
    return vault


def _put_aside(vault: VaultDirectory | None, member: str) -> None:
    """It is of the history before, and the next start would refuse it: here the operator has decided already."""
    if vault is None:
        return
    try:
        vault.put_aside()
    except VaultUnusable as error:
        raise FolderError(
            f"{member} is the only voter now, but {error}. Mend that, and put it aside: palisade vault reset "
            f"--data-dir {vault.path.parent} --confirm"
        ) from error
