"""The fencing of a node as one of its components: the lease client of every node, the lease server of members."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palisade.base.network_reason import reason_of
from palisade.fencing.holder_state import Holder
from palisade.fencing.timing import FenceTiming
from palisade.node.fencing.leader_connection import LeaderLink, LeaderRoute
from palisade.node.fencing.lease_client import LeaseClient
from palisade.node.fencing.lease_server import LeaseServer
from palisade.node.fencing.vault_gate import VaultGate
from palisade.raftgroup.errors import RaftError
from palisade.raftgroup.ports import Clock
from palisade.recovery.lifecycle import Component
from palisade.service.fenced_reads import Ask, FencedReads
from palisade.service.pending_write import OwnLease, ReleaseWaiters
from palisade.service.ports import GroupFace
from palisade.vault.vault import Vault
from palisade.wire.credentials import NodeProof

log = logging.getLogger(__name__)

TICK_S = 0.02
LOOK_S = 0.1
"""How often a serving node checks whether it is still in the topology. Its lease keeps it safe meanwhile."""
FAREWELL_S = 0.5

Listener = Callable[[], Awaitable[None]]
"""Updates the caches of a component before the node serves again; an exception keeps the node fenced (F2)."""


@dataclass(frozen=True, slots=True)
class HolderNode:
    """This node, as a holder of leases. `vault_id`: names the fence page of the open vault. `incarnation`: of this node
    in the logical topology; 0 while it is not in it. `proof`: shows the leader that this is a node of the cluster."""

    id: str
    vault_id: Callable[[], str]
    incarnation: Callable[[], int]
    proof: NodeProof | None = None


@dataclass(frozen=True, slots=True)
class MemberParts:
    """Of a member of the Raft group, in addition to its holder. `released`: advanced with the RR that the holder
    receives. `lease`: shows the holder to the write path."""

    lease_server: LeaseServer
    released: ReleaseWaiters
    lease: OwnLease
    group: GroupFace


class FencingComponent(Component):
    """The fence of the node's vault (`recovery.vault_component.VaultFence`).

    `ask`: reads from the cluster what a fenced node must not answer itself. `of_member`: None on a follower.
    """

    def __init__(
        self,
        node: HolderNode,
        route: LeaderRoute,
        clock: Clock,
        timing: FenceTiming,
        *,
        ask: Ask | None = None,
        of_member: MemberParts | None = None,
    ) -> None:
        self._node, self._route = node, route
        self.node = node.id
        self._clock, self.timing = clock, timing
        self._member = of_member
        self.listeners: dict[str, Listener] = {}
        self.holder: LeaseClient | None = None
        self.reads = FencedReads(ask, self._lacks_leader)
        self.link: LeaderLink | None = None
        self._linked: asyncio.Task[None] | None = None
        self._recovering: asyncio.Task[None] | None = None

    # Called by the vault component

    def opened(self, vault: Vault) -> VaultGate:
        member = self._member
        on_released, log = (member.released.release, member.released.log) if member is not None else (_ignore, None)
        vault_id, now = self._node.vault_id(), self._clock.now
        self.holder = LeaseClient(self.node, vault_id, vault, self.timing, now, on_released, log)
        if member is not None:
            member.lease.opened(self.holder)
        self.reads.open(vault, self.holder.changed, self._clock.now)
        return self.holder.gate

    def recovering(self, begins: bool) -> None:
        if self.holder is not None:
            self.holder.recovering(begins)

    def closing(self) -> None:
        self.reads.close()

    def _lacks_leader(self) -> bool:
        linked = self.link is not None and self.link.at is not None
        return not (linked or self._route.leads_here() or self._route.leader() is not None)

    # As a component

    async def start(self) -> None:
        if self.holder is None:
            raise RuntimeError("the vault is not open: the vault part starts first")
        lease_server = self._member.lease_server if self._member is not None else None
        self.link = LeaderLink(self.holder, self._route, self.node, lease_server, self._node.proof)
        self._linked = asyncio.get_running_loop().create_task(self.link.run(), name="fence link")

    async def run(self) -> None:
        """Raises an error after which the node must stop; its lease then expires."""
        holder, linked = self.holder, self._linked
        if holder is None or linked is None:
            return
        while not linked.done():
            holder.set_incarnation(self._node.incarnation())
            if holder.wants_recovery():
                self._recover(holder)
            await asyncio.sleep(LOOK_S if holder.serves else TICK_S)
        linked.result()

    def _recover(self, holder: LeaseClient) -> None:
        core = holder.begin_recovery()
        if not self.listeners and holder.vault.revision >= core.released:
            holder.recovered(core)
            return
        self._recovering = asyncio.get_running_loop().create_task(self._listen(holder, core), name="fence recovery")

    async def _listen(self, holder: LeaseClient, core: Holder) -> None:
        """Wait for the vault only: components are notified of a revision before the vault applies it, so they are up to
        date as well (F2)."""
        released = core.released
        while holder.vault.revision < released:  # noqa: ASYNC110
            await asyncio.sleep(TICK_S)
        for name, listener in self.listeners.items():
            try:
                await listener()
            except Exception as error:
                holder.recovery_failed(core, f"{name}: {reason_of(error)}")
                return
        holder.recovered(core)

    async def stop(self) -> None:
        """Promise the leader that this node serves nothing any more, so that no write waits for it. Releases still
        arrive until `unlink`, because pending responses of its servers need them."""
        if self._recovering is not None:
            self._recovering.cancel()
        if self.holder is not None:
            self.holder.stop(self.holder.why if self.holder.removed else "it is stopping")
        if self._member is not None and self._member.group.leads:
            await self._hand_over(self._member.group)

    async def unlink(self) -> None:
        """No response of this node waits for a release any more."""
        if self._linked is not None:
            self._linked.cancel()
            await asyncio.gather(self._linked, return_exceptions=True)

    async def _hand_over(self, group: GroupFace) -> None:
        """The promise must reach the next leader as well."""
        try:
            async with asyncio.timeout(2 * FAREWELL_S):
                await group.transfer(None)
                await self._welcomed_by_leader()
        except (RaftError, TimeoutError) as error:
            log.info(
                "stopping before the next leader has received the promise of this node: reason=%s", reason_of(error)
            )

    async def _welcomed_by_leader(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                while self.link is None or not self.link.at or not self.link.welcomed:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    @property
    def was_removed(self) -> bool:
        return self.holder is not None and self.holder.removed

    def removed(self) -> None:
        """The node was removed from the cluster: no path answers from its vault any more."""
        if self.holder is not None:
            self.holder.remove()


def _ignore(revision: int) -> None:
    """On a follower no write waits for a release."""


class ReleaseComponent(Component):
    """Stops after the servers, which need it. Otherwise a strict write under way at the stop would be committed and
    never answered, and the stop would wait for its response until the deadline."""

    def __init__(self, part: FencingComponent) -> None:
        self._part = part

    async def stop(self) -> None:
        await self._part.unlink()
