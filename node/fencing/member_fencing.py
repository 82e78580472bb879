"""Fencing on a member of the Raft group: its strict log, its responses, and the leases that it grants as the leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from palisade.catalog.ports import ReleaseRefused
from palisade.fencing.timing import FenceTiming
from palisade.fencing.verdict import VerdictOutcome
from palisade.metastore.state_machine import MetaStore
from palisade.node.fencing.fencing_component import FencingComponent, HolderNode, MemberParts
from palisade.node.fencing.holder_registry import ActiveNodes, HolderRegistry, registrations
from palisade.node.fencing.inherited_leases import counted_by
from palisade.node.fencing.lease_endpoint import LeaseEndpoint
from palisade.node.fencing.lease_server import ClusterView, LeaseServer
from palisade.raftgroup.group import Group
from palisade.raftgroup.ports import Clock
from palisade.service.callers import THIS_NODE
from palisade.service.cluster_fallback import asks_own_cluster
from palisade.service.key_values import KeyValues
from palisade.service.pending_write import OWN_KEYS, OwnLease, ReleaseWaiters, StrictResponses
from palisade.service.regions import regions_of
from palisade.service.strict_changes import StrictLog

LOOK_S = 0.5

log = logging.getLogger(__name__)


class GroupRoute:
    """The leader, as the group knows it."""

    def __init__(self, group: Group, lease_server: LeaseServer, member: str) -> None:
        self._group, self._lease_server, self._member = group, lease_server, member

    def leads_here(self) -> bool:
        return self._lease_server.core.leads

    def leader(self) -> str | None:
        leader = self._group.leader
        member = self._group.members.get(leader) if leader is not None and leader != self._member else None
        return member.addresses.get("stream") if member is not None else None

    def candidates(self) -> Sequence[str]:
        """None: members learn the leader from the group."""
        return ()


def strict_answers(store: MetaStore, now: Callable[[], float], fencing: Callable[[], MemberFencing]) -> StrictResponses:
    """Over a new strict log. `fencing`: called when a response is late; it may be constructed later."""
    log = StrictLog(store.bodies, lambda: regions_of(store), lambda: store.revision)
    return StrictResponses(
        ReleaseWaiters(log, now),
        lambda: fencing().waits_for(),
        lambda: bool(store.range(OWN_KEYS).kvs),
        OwnLease(),
    )


class MemberFencing:
    """`part` and `registry` run as components; `released` is one of the store's listeners."""

    def __init__(
        self,
        node: HolderNode,
        service: KeyValues,
        strict: StrictResponses,
        group: Group,
        clock: Clock,
        timing: FenceTiming,
    ) -> None:
        """`strict`: of `service`."""
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
        self.lease_server = LeaseServer(
            self.released,
            timing,
            clock.now,
            ClusterView(
                group.try_read_barrier,
                self._leader_address,
                self.active.is_active,
                lambda: store.lineage.generation,
            ),
            on_failed=group.fail,
        )
        self.lease_endpoint = LeaseEndpoint(self.lease_server)
        self.registry = HolderRegistry(group, store.system, self.active, self.lease_server, clock.now)
        self.part = FencingComponent(
            node,
            GroupRoute(group, self.lease_server, node.id),
            clock,
            timing,
            ask=asks_own_cluster(partial(service.range, caller=THIS_NODE)),
            of_member=MemberParts(self.lease_server, self.released, strict.lease, group),
        )

    def _leader_address(self) -> str | None:
        leader = self._group.leader
        member = self._group.members.get(leader) if leader is not None else None
        return member.addresses.get("stream") if member is not None else None

    def led(self, leads: bool, term: int) -> None:
        """Called by the group when this member starts or stops leading."""
        if leads:
            self.lease_server.begin_term(term, counted_by(self.timing, registrations(self._service.store.system)))
        else:
            self.lease_server.end_term()

    # For procedures

    async def until_released(self, revision: int) -> None:
        """Waits without a time limit. Raises ReleaseRefused if a holder without leases does not answer."""
        while not await self.released.until(revision, LOOK_S):
            core = self.lease_server.core
            verdict = core.verdict(self._clock.now(), revision) if core.leads else None
            if verdict is not None and verdict.outcome is VerdictOutcome.FAIL:
                raise ReleaseRefused("; ".join(verdict.reasons))

    def waiting_for(self, revision: int) -> list[str]:
        """The nodes that this revision waits for; empty if this node does not lead."""
        core = self.lease_server.core
        verdict = core.verdict(self._clock.now(), revision) if core.leads else None
        return [each.node for each in verdict.waits_for] if verdict is not None else []

    # For display

    def waits_for(self) -> str:
        """For which holders the oldest change waits, as text; empty if this node does not know."""
        core = self.lease_server.core
        verdict = core.verdict(self._clock.now()) if core.leads else None
        return f": it waits for {', '.join(verdict.reasons)}" if verdict is not None and verdict.reasons else ""
