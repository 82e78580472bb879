"""The fencing of a node as one of its components: the holder's part on every node, the grantor's on members."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palisade.fencing.holder_state import Holder
from palisade.fencing.timing import FenceTiming
from palisade.node.fencing.leader_connection import LeaderLink, LeaderRoute
from palisade.node.fencing.lease_client import LeaseClient
from palisade.node.fencing.lease_server import LeaseServer
from palisade.node.fencing.vault_gate import VaultGate
from palisade.raftgroup.ports import Clock
from palisade.recovery.lifecycle import Component
from palisade.service.fenced_reads import Ask, FencedReads
from palisade.service.own_lease import OwnLease
from palisade.service.strict_changes import StrictLog
from palisade.vault.vault import Vault
from palisade.wire.credentials import NodeProof

log = logging.getLogger(__name__)

TICK_S = 0.02
LOOK_S = 0.1
"""How often it is looked whether the node is in the topology, while it serves. Its lease keeps it safe."""
FAREWELL_S = 0.5

Listener = Callable[[], Awaitable[None]]
"""Brings what a component caches up to date before the node serves again; raising keeps it fenced (F2)."""


@dataclass(frozen=True, slots=True)
class MemberParts:
    """What a member of the Raft group has beside its holder. `lease`: shows the holder to the write path.
    `on_released`: RR has moved, as the holder knows it."""

    grantor: LeaseServer
    strict_log: StrictLog
    lease: OwnLease
    on_released: Callable[[int], None]


class FencingComponent(Component):
    """The fence of the node's vault (`recovery.vault_component.VaultFence`): made before the keeper, which calls it.

    `vault_id`: which fence page the open vault has. `incarnation`: of this node in the logical topology; 0 while it is
    not in it. `ask`: the cluster, for what a fenced node must not answer. `of_member`: None on a follower.
    """

    def __init__(
        self,
        node: str,
        vault_id: Callable[[], str],
        route: LeaderRoute,
        clock: Clock,
        timing: FenceTiming,
        incarnation: Callable[[], int],
        *,
        ask: Ask | None = None,
        of_member: MemberParts | None = None,
    ) -> None:
        self.node, self._vault_id, self._route = node, vault_id, route
        self._clock, self.timing, self._incarnation = clock, timing, incarnation
        self._member = of_member
        self.listeners: dict[str, Listener] = {}
        self.holder: LeaseClient | None = None
        self.reads = FencedReads(ask)
        self.link: LeaderLink | None = None
        self.shown: NodeProof | None = None
        """By which the leader knows that this is a node."""
        self._linked: asyncio.Task[None] | None = None
        self._recovering: asyncio.Task[None] | None = None

    # What the keeper of the vault calls

    def opened(self, vault: Vault) -> VaultGate:
        member = self._member
        on_released = member.on_released if member is not None else _ignore
        self.holder = LeaseClient(self.node, self._vault_id(), vault, self.timing, self._clock.now, on_released)
        if member is not None:
            member.lease.holder = self.holder
        self.reads.open(vault, self.holder.changed, self._clock.now)
        gate = VaultGate(self.holder, member.strict_log if member is not None else None)
        self.holder.gate = gate
        return gate

    def recovering(self, begins: bool) -> None:
        if self.holder is not None:
            self.holder.recovering(begins)

    def closing(self) -> None:
        self.reads.close()

    # As a component

    async def start(self) -> None:
        if self.holder is None:
            raise RuntimeError("the vault is not open: the vault part starts first")
        grantor = self._member.grantor if self._member is not None else None
        self.link = LeaderLink(self.holder, self._route, self.node, grantor, self.shown)
        self._linked = asyncio.get_running_loop().create_task(self.link.run(), name="fence link")

    async def run(self) -> None:
        """Raises what makes it impossible to go on: the node stops, and its lease runs out."""
        holder, linked = self.holder, self._linked
        if holder is None or linked is None:
            return
        while not linked.done():
            holder.is_now(self._incarnation())
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
        """First the vault: the components of the node hear of a revision before it is there, so they are up to date
        with it (F2)."""
        released = core.released
        while holder.vault.revision < released:  # noqa: ASYNC110
            await asyncio.sleep(TICK_S)
        for name, listener in self.listeners.items():
            try:
                await listener()
            except Exception as error:
                holder.recovery_failed(core, f"{name}: {error or type(error).__name__}")
                return
        holder.recovered(core)

    async def stop(self) -> None:
        """In good order: no write waits for a node that says that it serves nothing any more. It goes on hearing what
        is released until `unlink`: answers of its servers wait for that."""
        if self._recovering is not None:
            self._recovering.cancel()
        if self.holder is not None:
            self.holder.stop(self.holder.why if self.holder.removed else "it is stopping")
        await self.hand_over()

    async def unlink(self) -> None:
        """Nobody waits for a release here any more."""
        if self._linked is not None:
            self._linked.cancel()
            await asyncio.gather(self._linked, return_exceptions=True)

    async def hand_over(self) -> None:
        """Of a member: whoever leads next has to hear the promise too."""

    def removed(self) -> None:
        """The node was removed from the cluster: no path answers from its vault any more."""
        if self.holder is not None:
            self.holder.remove()

    def refuse_at_once(self) -> None:
        """The node fails: what its vault says is not to be trusted from now on."""
        if self.holder is not None:
            with contextlib.suppress(Exception):
                self.holder.stop()


def _ignore(revision: int) -> None:
    """On a follower no write waits for a release."""


class ReleaseComponent(Component):
    """Stops behind the servers, which need it. Without it a strict write that was under way when its node was stopped
    would be committed and never answered, and the stop would wait for that answer as long as it may."""

    def __init__(self, part: FencingComponent) -> None:
        self._part = part

    async def stop(self) -> None:
        await self._part.unlink()
