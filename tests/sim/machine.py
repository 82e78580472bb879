"""The machine of a simulated node: a `node.host.Machine` on simulated disk, network, clock and random source."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from palisade.base.address import Address
from palisade.base.http_request import NoAnswer, error_text
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.requests import Range
from palisade.node.config import NodeConfig
from palisade.node.host import Addresses, Host, HostedServer, SegmentOrigin
from palisade.raftgroup.errors import RaftError, Unavailable
from palisade.raftgroup.group import Group
from palisade.raftgroup.membership import Member, MemberRole
from palisade.raftgroup.ports import Clock, Journal, Peers
from palisade.recovery.remote_source import RemoteSource
from palisade.recovery.vault_storage import VaultHome
from palisade.segments.peers import SegmentPeers
from palisade.segments.realtime_log import RealtimeFolder
from palisade.segments.segment_store import Disk as SegmentFiles
from palisade.segments.sources import SegmentSource
from palisade.service.callers import UNRESTRICTED
from palisade.service.feed_service import FeedAnswers
from palisade.topology.admission_rules import JoinRequest
from palisade.topology.initialization import Participant
from palisade.topology.physical import PhysicalTopology
from palisade.topology.records import NodeRecord
from palisade.topology.registrar import ClusterState, Registrar
from palisade.topology.remote_registrar import RemoteRegistrar
from palisade.wire.fencing_errors import ReleaseError
from palisade.wire.json_results import range_shape
from tests.sim.disk import Disk, SimStore
from tests.sim.segment_disk import SimRealtimeFolder, SimSegmentFiles
from tests.sim.segment_sources import SimOrigin, SimSegmentPeers
from tests.sim.vault_home import SimVaultHome
from tests.support.raft_network import SimPeers
from tests.support.simulation import Process

if TYPE_CHECKING:
    from tests.sim.world import World

T = TypeVar("T")
REGISTRAR_S = 10.0
SLOW_READ_S = 0.5
"""The longest read of a segment where queries take longer."""
JOIN_RETRY_S = 1.0


class NoHttp:
    """Simulated nodes are asked by `World.ask` instead of HTTP, except by HTTP clients, in some runs."""

    async def start(self, host: str, port: int) -> None: ...
    async def close(self) -> None: ...


class SimMachine(Host):
    """Of one start of a node."""

    def __init__(self, config: NodeConfig, world: World, disk: Disk, process: Process, start: int) -> None:
        self.config, self.world, self.disk, self.process = config, world, disk, process
        self.clock: Clock = process
        self.random = Random(f"{world.seed} {config.id} {start}")
        self.home = SimVaultHome(disk, process.now)
        self.sim_peers = SimPeers(world.network, config.id, process)

    def claim(self) -> bool:
        return False

    def participant(self) -> Participant:
        return Participant()

    def lock(self) -> Callable[[], None]:
        return lambda: None

    def journal(self) -> Journal:
        """Raises JournalCorrupt."""
        self.disk.read("journal")
        return self.disk.journal

    def store(self) -> LmdbStore:
        """Raises StoreCorrupt."""
        self.disk.read("store")
        store: Any = SimStore(self.disk)
        return store  # type: ignore[no-any-return]

    def vault(self) -> VaultHome:
        return self.home

    def segment_disk(self) -> SegmentFiles:
        self.disk.segments.slow_s = SLOW_READ_S if self.world.has_expiry else 0.0
        return SimSegmentFiles(self.disk.segments)

    def realtime_folder(self) -> RealtimeFolder:
        return SimRealtimeFolder(self.disk.segments)

    def segment_peers(self) -> SegmentPeers:
        return SimSegmentPeers(self)

    def segment_origin(self) -> SegmentOrigin:
        return SimOrigin(self.world)

    def segment_file(self, url: str) -> SegmentSource:
        raise AssertionError(f"no record has a file: {url}")

    def peers(self) -> Peers:
        return self.sim_peers

    def http(self, make: Callable[[], Any]) -> HostedServer:
        if not self.world.settings.http:
            return NoHttp()
        server: HostedServer = make()
        return server

    def registrar(self, addresses: Addresses) -> RemoteRegistrar:
        return SimRegistrar(self, addresses)

    def source(self, addresses: Addresses) -> RemoteSource:
        return SimSource(self, addresses)

    async def enter(self, group: Group) -> None:
        """As `topology.join_request`: request to be added until the own log contains it."""
        if self.config.join is None:
            return
        wanted = Member(self.config.id, MemberRole.LEARNER, group.incarnation, self.config.advertised(), True)
        while True:
            member = group.members.get(self.config.id)
            if member is not None and member.incarnation == group.incarnation:
                return
            for address in self.world.http_of_members(self.config.id):
                try:
                    async with asyncio.timeout(REGISTRAR_S):
                        await self.ask(address, lambda node: node.group.add(wanted))
                    break
                except (RaftError, ConnectionError, TimeoutError):
                    continue
            await asyncio.sleep(JOIN_RETRY_S)

    async def find_seeds(self, physical: PhysicalTopology, at: Address) -> None:
        while len(physical.swim.live()) < 2:
            physical.add_seeds(self.world.swim_addresses(self.config.id))
            await asyncio.sleep(JOIN_RETRY_S)

    async def ask(self, address: str, work: Callable[[Any], Awaitable[T]]) -> T:
        """Call a node, as its HTTP server would. Raises ConnectionError, and the errors of the call."""
        return await self.world.ask(self.process, self.config.id, address, work)


class SimRegistrar(RemoteRegistrar):
    """The requests of `RemoteRegistrar`, to the registrar of a member."""

    def __init__(self, machine: SimMachine, addresses: Addresses) -> None:
        super().__init__(addresses)
        self._machine = machine

    async def _ask_one(self, address: str, method: str, path: str, body: Any) -> Any:
        """The only requests by path: those of a fenced node (`service.cluster_fallback`)."""
        if (method, path) != ("POST", "/v1/range"):
            raise AssertionError(f"{method} {path} is not simulated")
        key, end = (base64.b64decode(body.get(f"{name}_base64", "")) for name in ("key", "range_end"))
        request = Range(key, end, limit=body["limit"])
        try:
            async with asyncio.timeout(REGISTRAR_S):
                return range_shape(
                    await self._machine.ask(address, lambda node: node.key_values.range(request, caller=UNRESTRICTED))
                )
        except (RaftError, ReleaseError) as error:
            return Unavailable(str(error))
        except (ConnectionError, TimeoutError) as error:
            raise NoAnswer(address, error_text(error), unreachable=True) from None

    async def state(self) -> ClusterState:
        return await self._at(lambda registrar: registrar.state())

    async def join(self, request: JoinRequest) -> NodeRecord:
        return await self._at(lambda registrar: registrar.join(request))

    async def recovered(self, name: str, instance: str, incarnation: int, revision: int) -> NodeRecord:
        return await self._at(lambda registrar: registrar.recovered(name, instance, incarnation, revision))

    async def leave(self, name: str, instance: str) -> NodeRecord:
        return await self._at(lambda registrar: registrar.leave(name, instance))

    async def look(self, name: str) -> NodeRecord | None:
        return await self._at(lambda registrar: registrar.look(name))

    async def nodes(self) -> tuple[list[NodeRecord], int]:
        return await self._at(lambda registrar: registrar.nodes())

    async def _at(self, work: Callable[[Registrar], Awaitable[T]]) -> T:
        """Raises JoinRejected, JoinLater, Unavailable."""
        trouble = "no node of the cluster is known yet"
        for address in self._addresses.in_order():
            try:
                async with asyncio.timeout(REGISTRAR_S):
                    answer = await self._machine.ask(address, lambda node: work(node.registrar))
            except (ConnectionError, TimeoutError, RaftError) as error:
                trouble = f"{address}: {error or type(error).__name__}"
                continue
            self._addresses.answered(address)
            return answer
        raise Unavailable(trouble)


class SimSource(RemoteSource):
    """`RemoteSource` over the simulated network."""

    def __init__(self, machine: SimMachine, addresses: Callable[[], Sequence[str]]) -> None:
        super().__init__(machine.config.id, addresses)
        self._machine = machine

    async def _send(self, address: str, name: str, body: bytes) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(15.0):
                return await self._machine.ask(address, lambda node: FeedAnswers(node.key_values).answer(name, body))
        except (ConnectionError, TimeoutError) as error:
            raise NoAnswer(address, error_text(error), unreachable=True) from None
