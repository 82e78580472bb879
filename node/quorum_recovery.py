"""`palisade recover-quorum`: one stopped node continues alone after a permanent loss of the majority of its cluster.

`survivor_store.py` changes its log and its state; this module opens its folder. Nothing is written without the
confirmation, which is the name of the cluster.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palisade.metastore.lmdb_store import LmdbStore
from palisade.node.data_dir import MARKER
from palisade.node.data_dir_marker import FolderError, Marker
from palisade.node.survivor_store import continue_alone, preview
from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.raftgroup.quorum_loss import Survivor
from palisade.vault.directory import DATA, VaultDirectory
from palisade.vault.errors import VaultUnusable


@dataclass(frozen=True, slots=True)
class QuorumRecovery:
    """`done` False: a preview; nothing was changed. `vault_aside`: where the vault of the earlier history is now."""

    survivor: Survivor
    revision: int
    generation: int
    done: bool
    vault_aside: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "cluster": self.survivor.cluster,
            "member": self.survivor.member,
            "last_term": self.survivor.last_term,
            "last_index": self.survivor.last_index,
            "revision": self.revision,
            "generation": self.generation,
            "lost_members": list(self.survivor.lost),
            "vault_aside": str(self.vault_aside) if self.vault_aside else None,
            "done": self.done,
        }


async def recover_quorum(data_dir: Path, confirm: str | None) -> QuorumRecovery:
    """Raises FolderError, DataDirectoryError, MembershipRefused, JournalCorrupt, StoreCorrupt, StoreFailed, VaultError.

    Nothing was changed then, with one exception, which its error names: a vault that could not be moved aside
    (FolderError).
    """
    if not (data_dir / MARKER).is_file():
        raise FolderError(f"{data_dir} is no data folder of a node ({MARKER} is missing): give that of the survivor")
    marker = Marker(data_dir, MARKER).read() or {}
    if confirm is not None and confirm != marker.get("cluster"):
        raise FolderError(
            f"{data_dir} belongs to cluster {marker.get('cluster')!r}, and {confirm!r} was confirmed: nothing was done"
        )
    if not (data_dir / "raft").is_dir():
        raise FolderError(
            f"{data_dir} has no log of the Raft group, so this node was never a member: give the folder of a voter "
            "that survived, or restore a backup"
        )
    journal = LmdbJournal(data_dir / "raft")
    try:
        store = LmdbStore(data_dir / "store")
        try:
            at = preview(journal, store, random.SystemRandom())
        finally:
            store.close()
        aside = None
        if confirm is not None:
            vault = _vault_of(data_dir)
            await continue_alone(journal, at)
            aside = _put_aside(vault, at.survivor.member)
        return QuorumRecovery(at.survivor, at.revision, at.generation, confirm is not None, aside)
    finally:
        journal.close()


def _vault_of(data_dir: Path) -> VaultDirectory | None:
    """None if the node has no vault. Raises VaultUnusable for one that is in use, before anything is forced."""
    vault = VaultDirectory(data_dir / "vault")
    if not (vault.path / DATA).is_file():
        return None
    vault.claim()
    vault.release()
    return vault


def _put_aside(vault: VaultDirectory | None, member: str) -> Path | None:
    """The new path. The vault belongs to the earlier history, and the next start would refuse it; the operator has
    already decided."""
    if vault is None:
        return None
    try:
        return vault.put_aside()
    except VaultUnusable as error:
        raise FolderError(
            f"{member} is the only voter now, but {error}. Fix that, then move the vault aside: palisade vault reset "
            f"--data-dir {vault.path.parent} --confirm"
        ) from error
