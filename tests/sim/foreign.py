"""A vault that is not the node's own, or not of this history: the result of a wrong mount, a copy or a restored disk.

The node must refuse it for the right reason, and serves nothing meanwhile; then an administrator resets it, as the
error says (R7, R8, M6).
"""

from __future__ import annotations

from dataclasses import replace

from palisade.recovery.decision import RefusalReason
from palisade.vault.position import VaultLineage, pack_lineage, pack_position, unpack_lineage, unpack_position
from palisade.vault.tables import VaultTable
from palisade.vault.vault import LINEAGE, POSITION
from tests.sim.node import Host

FAR = 1_000_000
"""Revisions that the cluster does not reach."""
WAYS = (
    RefusalReason.FOREIGN_NODE,
    RefusalReason.FOREIGN_CLUSTER,
    RefusalReason.OLDER_HISTORY,
    RefusalReason.NEWER_HISTORY,
    RefusalReason.AHEAD,
    RefusalReason.DIVERGED,
)
OF_FOLLOWERS = (*WAYS, *[RefusalReason.FOREIGN_CLUSTER] * 4)
"""A follower with another cluster's vault is refused when it joins; members are admitted, and refuse it themselves."""


def make_foreign(host: Host, amount: float) -> bool:
    """The node does not run. False: it has no vault yet, or a foreign one already."""
    if host.foreign is not None:
        return False
    disk = host.disk
    before = disk.backend
    lineage = unpack_lineage(before.get(VaultTable.META, LINEAGE))
    position = unpack_position(before.get(VaultTable.META, POSITION))
    if lineage is None or not position.revision:
        return False
    ways = OF_FOLLOWERS if host.follows else WAYS
    reason = ways[int(amount * len(ways))]
    if reason is RefusalReason.DIVERGED and position.chain == position.chain[::-1]:
        return False  # At no revision yet: nothing to diverge from (strange 293).
    changed = {LINEAGE: pack_lineage(_lineage(reason, lineage)), POSITION: pack_position(position)}
    if reason is RefusalReason.AHEAD:
        changed[POSITION] = pack_position(replace(position, revision=position.revision + FAR))
    if reason is RefusalReason.DIVERGED:
        changed[POSITION] = pack_position(replace(position, chain=position.chain[::-1]))
    disk.put_vault_aside()
    if reason is RefusalReason.DIVERGED:
        disk.wrong_chain = position.chain[::-1]
    copied = {table: dict(before.scan(table, b"", None)) for table in VaultTable}
    disk.backend.fill({**copied, VaultTable.META: {**copied[VaultTable.META], **changed}})
    disk.foreign, host.vault = reason, None
    return True


def _lineage(reason: RefusalReason, mine: VaultLineage) -> VaultLineage:
    match reason:
        case RefusalReason.FOREIGN_NODE:
            return replace(mine, node_id="n99")
        case RefusalReason.FOREIGN_CLUSTER:
            return replace(mine, cluster_id="another")
        case RefusalReason.OLDER_HISTORY:
            return replace(mine, generation=mine.generation - 1)
        case RefusalReason.NEWER_HISTORY:
            return replace(mine, generation=mine.generation + 1)
    return mine


def reset(host: Host) -> None:
    """The remedy in the error message."""
    if host.foreign is not None:
        host.disk.put_vault_aside()
        host.vault = None
