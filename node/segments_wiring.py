"""Puts the partitions of a node on its vault, where the node is told to keep any."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from node.authorization.wiring import headers_of
from node.components.lifecycle import Part
from node.config import NodeConfig
from node.partitions.disk import FolderDisk
from node.partitions.fenced_rules import FencedRules
from node.partitions.holder import PartitionHolder
from node.partitions.origin import Origin
from node.partitions.peers import Peers
from node.partitions.retention_worker import Pace, RetentionWorker, system_clocks
from node.partitions.shelf import Shelf
from node.partitions.sources import Everywhere
from node.swim.record import Record
from node.topology.seeds import http_of_others
from node.vault_keeper import OnVault


@dataclass(frozen=True, slots=True)
class Partitions:
    """`holder` None: the node keeps none, and nobody listens to its vault for them."""

    holder: PartitionHolder | None = None
    peers: Peers | None = None
    origin: Origin | None = None

    async def close(self) -> None:
        if self.origin is not None:
            self.origin.close()
        if self.peers is not None:
            await self.peers.close()


def with_partitions(
    config: NodeConfig, records: Callable[[], Iterable[Record]], on_vault: OnVault
) -> tuple[OnVault, Partitions]:
    """`records`: of the physical topology."""
    if not config.partitions:
        return on_vault, Partitions()
    peers, origin = Peers(headers_of(config)), Origin(config.partitions_origin)
    holder = PartitionHolder(
        config.id,
        Shelf(FolderDisk(config.data_dir / "partitions")),
        Everywhere(lambda: http_of_others(records(), config.id), peers.peer, origin),
        on_vault.components.listeners,
    )
    pace = Pace(config.partitions_look_s, config.partitions_trash_s)
    retention = RetentionWorker(holder, on_vault.components.listeners, system_clocks, FencedRules.over, pace)
    with_holder = on_vault.and_also(Part("partitions", holder), holder.on)
    with_both = with_holder.and_also(Part("retention", retention, ("partitions",)), holder.on)
    return with_both, Partitions(holder, peers, origin)
