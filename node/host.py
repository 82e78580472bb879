"""The node's access to its machine: files, ports, clock, randomness, and connections to other nodes.

`Host` is the real one. A simulation passes its own; the wiring of `member.py` and `follower.py` is the same in both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from palisade.base.address import Address
from palisade.base.clock import SystemClock
from palisade.base.directory_lock import DirectoryLock
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.store_errors import StoreFailed
from palisade.node.authorization import headers_of
from palisade.node.config import NodeConfig
from palisade.node.data_dir import claim_data_dir, kept_participant, release_data_dir
from palisade.node.data_dir_marker import FolderError
from palisade.raftgroup.errors import DataDirectoryError
from palisade.raftgroup.group import Group
from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.raftgroup.peer_connection import TransportLimits
from palisade.raftgroup.ports import Clock, Journal, Peers, Random
from palisade.raftgroup.tcp_transport import TcpPeers
from palisade.recovery.remote_source import RemoteSource
from palisade.recovery.vault_storage import VaultFolder, VaultHome
from palisade.segments.dataset_source import DatasetSource
from palisade.segments.disk import FolderDisk
from palisade.segments.file_source import FileSource
from palisade.segments.peers import SegmentPeers
from palisade.segments.realtime_folder import DiskFolder
from palisade.segments.realtime_log import RealtimeFolder
from palisade.segments.segment_store import Disk
from palisade.segments.sources import SegmentSource
from palisade.topology.initialization import Participant
from palisade.topology.join_request import join_cluster
from palisade.topology.known_nodes import ask_for_seeds
from palisade.topology.physical import PhysicalTopology
from palisade.topology.remote_registrar import RemoteRegistrar


class HostedServer(Protocol):
    async def start(self, host: str, port: int) -> None: ...
    async def close(self) -> None: ...


class SegmentOrigin(SegmentSource, Protocol):
    """Where segments come from that no node has."""

    def close(self) -> None: ...


Addresses = Callable[[], Sequence[str]]


class Host:
    """The host of one node. `claim` is called first."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.clock: Clock = SystemClock()
        self.random: Random = random.SystemRandom()

    # Files

    def claim(self) -> bool:
        """Whether the folder was free before. Raises FolderError."""
        return claim_data_dir(self.config.data_dir, cluster=self.config.cluster, node=self.config.id)

    def release(self) -> None:
        """Undo the claim of a node that no cluster has admitted, before its folder is unlocked."""
        release_data_dir(self.config.data_dir)

    def participant(self) -> Participant:
        """The state of the initialization of a cluster on this node. Raises FolderError."""
        return kept_participant(self.config.data_dir)

    def lock(self) -> Callable[[], None]:
        """For a node without a journal: locks the folder. Returns the function that releases it. Raises FolderError."""
        return DirectoryLock(self.config.data_dir, DataDirectoryError).release

    def journal(self) -> Journal:
        """Raises DataDirectoryError, JournalCorrupt."""
        return LmdbJournal(self.config.data_dir / "raft")

    def store(self) -> LmdbStore:
        """Raises FolderError, StoreCorrupt."""
        try:
            return LmdbStore(self.config.data_dir / "store")
        except StoreFailed as error:
            raise FolderError(str(error)) from error

    def vault(self) -> VaultHome:
        return VaultFolder(self.config.data_dir / "vault")

    # Segments, on a node that stores them

    def segment_disk(self) -> Disk:
        return FolderDisk(self.config.data_dir / "segments")

    def realtime_folder(self) -> RealtimeFolder:
        return DiskFolder(self.config.data_dir / "realtime")

    def segment_peers(self) -> SegmentPeers:
        return SegmentPeers(headers_of(self.config))

    def segment_origin(self) -> SegmentOrigin:
        return DatasetSource(self.config.segments_origin)

    def segment_file(self, url: str) -> SegmentSource:
        return FileSource(url)

    # Other nodes

    def peers(self) -> Peers:
        """Connections to the other nodes of the Raft group."""
        return TcpPeers(
            str(self.config.peer),
            random.SystemRandom(),
            limits=transport_limits(self.config),
            ports=self.config.advertised(),
        )

    def http(self, make: Callable[[], Any]) -> HostedServer:
        """The HTTP server that `make` returns."""
        server: HostedServer = make()
        return server

    def registrar(self, addresses: Addresses) -> RemoteRegistrar:
        return RemoteRegistrar(addresses, headers_of(self.config))

    def source(self, addresses: Addresses) -> RemoteSource:
        return RemoteSource(self.config.id, addresses, headers_of(self.config))

    async def enter(self, group: Group) -> None:
        """Adds the node to the Raft group, if it is to join one. Raises JoinRefused."""
        await join_cluster(self.config.own_node(), group, headers_of(self.config))

    async def find_seeds(self, physical: PhysicalTopology, at: Address) -> None:
        await ask_for_seeds(physical, at, headers_of(self.config))


def transport_limits(config: NodeConfig) -> TransportLimits:
    peers = config.peers
    return TransportLimits(
        handshake_timeout_s=peers.handshake_timeout_s,
        idle_timeout_s=peers.idle_timeout_s,
        ping_interval_s=peers.ping_s,
        redial_min_s=min(TransportLimits().redial_min_s, peers.redial_max_s),
        redial_max_s=peers.redial_max_s,
        queued_bytes_max=peers.queue_bytes,
        strangers_max=peers.strangers,
    )
