"""Fencing on a member of the Raft group: its strict log, its answers, the grants that it gives when it leads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from palisade.catalog.ports import ReleaseRefused
from palisade.fencing.timing import FenceTiming
from palisade.fencing.verdict import VerdictOutcome
from palisade.metastore.changes import AppliedEntry, StoreListener
from palisade.metastore.state_machine import MetaStore
from palisade.node.fencing.fencing_component import FAREWELL_S, FencingComponent, MemberParts
from palisade.node.fencing.holder_registry import ActiveNodes, HolderRegistry, registrations
from palisade.node.fencing.inherited_leases import counted_by
from palisade.node.fencing.lease_endpoint import LeaseEndpoint
from palisade.node.fencing.lease_server import ClusterView, LeaseServer
from palisade.raftgroup.errors import RaftError
from palisade.raftgroup.group import Group
from palisade.raftgroup.ports import Clock
from palisade.service.cluster_fallback import asks_own_cluster
from palisade.service.key_values import KeyValues
from palisade.service.own_lease import OwnLease
from palisade.service.regions import regions_of
from palisade.service.release_waiters import ReleaseWaiters
from palisade.service.strict_changes import StrictLog
from palisade.service.strict_responses import OWN_KEYS, StrictResponses

LOOK_S = 0.5

log = logging.getLogger(__name__)


class GroupRoute:
    """Who leads, as the group knows it."""

    def __init__(self, group: Group, grantor: LeaseServer, member: str) -> None:
        self._group, self._grantor, self._member = group, grantor, member

    def leads_here(self) -> bool:
        return self._grantor.core.leads

    def leader(self) -> str | None:
        leader = self._group.leader
        member = self._group.members.get(leader) if leader is not None and leader != self._member else None
        return member.addresses.get("stream") if member is not None else None

    def candidates(self) -> Sequence[str]:
        """The group itself says who leads, so nobody else is asked."""
        return ()


def strict_answers(store: MetaStore, now: Callable[[], float], fencing: Callable[[], MemberFencing]) -> StrictResponses:
    """Over a new strict log. `fencing`: asked when an answer is late; it may be made later."""
    log = StrictLog(store.bodies, lambda: regions_of(store), store.revision)
    return StrictResponses(
        ReleaseWaiters(log, now),
        lambda: fencing().waits_for(),
        lambda: bool(store.range(OWN_KEYS).kvs),
        OwnLease(),
    )


class MemberFencing(StoreListener):
    """One of the store's listeners. `part` and `registry` run as components."""

    def __init__(
        self,
        node: str,
        service: KeyValues,
        strict: StrictResponses,
        group: Group,
        vault_id: Callable[[], str],
        clock: Clock,
        timing: FenceTiming,
        incarnation: Callable[[], int],
    ) -> None:
        """`strict`: of `service`. `incarnation`: of this node in the logical topology; 0 while it is not in it."""
        self._service, self._group, self._clock = service, group, clock
        store = service.store
        self.timing = timing
        if timing.proceed_s() > service.deadline_s:
            log.warning(
                "a strict write may wait %.2f s for a node that does not answer, and requests end after %.2f s: raise "
                "--request-deadline-s, or lower --fence-s",
                timing.proceed_s(),
                service.deadline_s,
            )
        self.released, self.log = strict.released, strict.released.log
        self.active = ActiveNodes(store.system)
        self.grantor = LeaseServer(
            self.log,
            timing,
            clock.now,
            ClusterView(
                group.try_read_barrier,
                self._leader_address,
                self.active.is_active,
                lambda: store.lineage.generation,
            ),
            on_released=self._on_released,
            on_failed=group.fail,
        )
        self.door = LeaseEndpoint(self.grantor)
        self.registry = HolderRegistry(group, store.system, self.active, self.grantor, clock.now)
        self.part = MemberFencingComponent(
            node, vault_id, GroupRoute(group, self.grantor, node), clock, timing, incarnation,
            ask=asks_own_cluster(service.range),
            of_member=MemberParts(self.grantor, self.log, strict.lease, self._on_released),
        )  # fmt: skip
        self.part.group = group
        group.leadership.on_led = self._led
        group.removal.on_found = lambda _error: self.part.removed()

    def _leader_address(self) -> str | None:
        leader = self._group.leader
        member = self._group.members.get(leader) if leader is not None else None
        return member.addresses.get("stream") if member is not None else None

    # What the group and the store tell

    def applied(self, changes: AppliedEntry) -> None:
        self.grantor.applied(self.log.applied(changes.keys, changes.before, changes.revision))
        self.released.wake()

    def reloaded(self) -> None:
        self.log.reset(self._service.store.revision)

    def _led(self, leads: bool, term: int) -> None:
        if leads:
            self.grantor.begin_term(term, counted_by(self.timing, registrations(self._service.store.system)))
        else:
            self.grantor.end_term()

    def _on_released(self, revision: int) -> None:
        if self.log.release(revision):
            self.released.wake()

    # What procedures ask

    async def until_released(self, revision: int) -> None:
        """However long it takes. Raises ReleaseRefused where only a holder that knows no leases is waited for."""
        while not await self.released.until(revision, LOOK_S):
            core = self.grantor.core
            verdict = core.verdict(self._clock.now(), revision) if core.leads else None
            if verdict is not None and verdict.outcome is VerdictOutcome.FAIL:
                raise ReleaseRefused("; ".join(verdict.reasons))

    def waiting_for(self, revision: int) -> list[str]:
        """The nodes that this revision waits for, as far as this one knows."""
        core = self.grantor.core
        verdict = core.verdict(self._clock.now(), revision) if core.leads else None
        return [each.node for each in verdict.waits_for] if verdict is not None else []

    # What to show

    def waits_for(self) -> str:
        """In words, for whom the oldest change waits; empty where that is not known here."""
        core = self.grantor.core
        verdict = core.verdict(self._clock.now()) if core.leads else None
        return f": it waits for {', '.join(verdict.reasons)}" if verdict is not None and verdict.reasons else ""


class MemberFencingComponent(FencingComponent):
    group: Group

    async def hand_over(self) -> None:
        """A leader that stops lets somebody else lead, and tells that one too that it serves nothing."""
        if not self.group.leads:
            return
        try:
            async with asyncio.timeout(2 * FAREWELL_S):
                await self.group.transfer(None)
                await self._told()
        except (RaftError, TimeoutError) as error:
            log.info("the node stops without a successor that has heard of it: %s", error or type(error).__name__)

    async def _told(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                while self.link is None or not self.link.at or not self.link.welcomed:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
