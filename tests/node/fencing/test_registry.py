"""The registry of holders at a leader that loses leadership in the middle of its work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from palisade.fencing.messages import GrantMessage, Hello, HolderId, HolderPhase, Renew
from palisade.fencing.registry import HolderStanding
from palisade.fencing.release import Registration
from palisade.fencing.timing import FenceTiming
from palisade.metastore.command_codec import encode_command
from palisade.metastore.limits import Limits
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.requests import SystemWrite
from palisade.metastore.state_machine import MetaStore
from palisade.node.fencing import holder_registry as registry
from palisade.node.fencing.holder_registry import (
    PREFIX,
    ActiveNodes,
    HolderRegistry,
    registration_of,
    registrations,
    value_of,
)
from palisade.node.fencing.lease_server import ClusterView, LeaseServer
from palisade.service.pending_write import ReleaseWaiters
from palisade.service.regions import regions_of
from palisade.service.strict_changes import StrictLog
from palisade.topology.records import NodeRecord, NodeRole, NodeStanding
from tests.support.fake_group import TERM, FakeGroup
from tests.support.hand_clock import Clock


class World:
    """A leader. `active`: every holder is in the topology. `gone`: every holder is out of it."""

    def __init__(self) -> None:
        self.active, self.gone = True, False
        self.store = MetaStore(MemoryMap(), Limits())
        self.group = FakeGroup(self.store, Clock())
        log = StrictLog(self.store.bodies, lambda: regions_of(self.store), lambda: self.store.revision)
        self.lease_server = LeaseServer(
            ReleaseWaiters(log, self.group.clock.now),
            FenceTiming(),
            self.group.clock.now,
            ClusterView(lambda: True, lambda: None, lambda node, incarnation: True),
            on_failed=pytest.fail,
        )
        active: Any = SimpleNamespace(is_active=lambda node, incarnation: self.active, is_gone=lambda node: self.gone)
        self.registry = HolderRegistry(self.group, self.store.system, active, self.lease_server, self.group.clock.now)
        self.proposed = 0

    def lead(self, term: int) -> None:
        self.lease_server.core.begin_term(term, self.group.clock.now(), [], 0)

    async def lease_to(self, node: str) -> None:
        """Of this term: it is registered first."""
        self.lead(TERM)
        self.want(node)
        await self.look_once()
        self.grant(node)

    def want(self, *nodes: str, vault: str = "", standing: HolderStanding = HolderStanding.NEW) -> None:
        for node in nodes:
            holder = HolderId(node, vault or f"vault of {node}", 1)
            hello = Hello(holder, True, 3.0, HolderPhase.FENCED, 0, False, 0, 0, 3.5)
            self.lease_server.wanted[node] = (hello, standing)

    def grant(self, node: str) -> None:
        """A lease, to a registered holder."""
        now = self.group.clock.now()
        renew = Renew(now, 0, HolderPhase.ACTIVE, True, 3.0, 3.5)
        granted = self.lease_server.core.renew(HolderId(node, f"vault of {node}", 1), renew, now, quorum_lease=True)
        assert isinstance(granted, GrantMessage)

    def loses_leadership(self, patch: pytest.MonkeyPatch, then: Callable[[], None] = lambda: None) -> None:
        """With each proposal."""
        propose = self.group.propose

        async def lose(*arguments: Any, **options: Any) -> Any:
            self.proposed += 1
            applied = await propose(*arguments, **options)
            self.lease_server.end_term()
            then()
            return applied

        patch.setattr(self.group, "propose", lose)

    async def look_once(self) -> None:
        """For the duration of one check; raises its error."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.registry.run(), 5 * registry.LOOK_S)


async def test_registry_stops_when_leadership_is_lost_during_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/sim, scenario many, seed 12: the node stopped itself with NotLeading."""
    world = World()
    world.lead(2)
    world.want("n1", "n2")

    world.loses_leadership(monkeypatch)
    await world.look_once()
    assert world.proposed == 1
    assert world.lease_server.core.registry.of("n1") is None


async def test_registry_drops_a_decision_of_an_earlier_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders report their needs again in the new term: an earlier decision may be wrong by then."""
    world = World()
    world.lead(2)
    world.want("n1", "n2")
    world.loses_leadership(monkeypatch, then=lambda: world.lead(4))
    await world.look_once()
    assert world.proposed == 1
    assert world.lease_server.core.registry.of("n1") is None


async def test_registry_stops_when_leadership_is_lost_during_removal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.lead(2)
    world.want("n1", "n2")
    await world.look_once()
    assert [record.name for record in world.store.system.with_prefix(PREFIX)] == ["holder/n1", "holder/n2"]
    world.gone = True
    world.group.clock.advance(60.0)
    world.loses_leadership(monkeypatch)
    await world.look_once()
    assert world.proposed == 1


async def test_registration_is_bound_to_the_term_of_its_decision() -> None:
    """A leader that was deposed without knowing it decides nothing: its record is void in the next term (issue 16)."""
    world = World()
    world.lead(TERM - 1)
    world.want("n1")
    await world.look_once()
    assert list(world.store.system.with_prefix(PREFIX)) == []
    assert world.lease_server.core.registry.of("n1") is None


async def test_removal_of_a_holder_is_bound_to_the_term_of_its_decision() -> None:
    """The next leader may have granted it a lease since."""
    world = World()
    world.lead(TERM)
    world.want("n1")
    await world.look_once()
    world.gone = True
    world.group.clock.advance(60.0)
    world.lease_server.end_term()
    world.lease_server.core.begin_term(TERM - 1, world.group.clock.now(), registrations(world.store.system), 0)
    world.group.clock.advance(60.0)
    await world.look_once()
    assert [each.node for each in registrations(world.store.system)] == ["n1"]
    assert world.lease_server.core.registry.of("n1") is not None


async def test_registry_takes_no_holder_that_is_not_in_the_topology() -> None:
    """A process of a removed node says Hello once more: strict writes would wait for it again."""
    world = World()
    world.lead(TERM)
    world.active = False
    world.want("n1")
    await world.look_once()
    assert list(registrations(world.store.system)) == []
    world.active = True
    await world.look_once()
    assert [each.node for each in registrations(world.store.system)] == ["n1"]


async def test_record_of_another_vault_is_replaced_once_no_lease_of_it_is_left() -> None:
    """Another leader would know nothing of that lease, and readers of the first vault serve until it ends."""
    world = World()
    await world.lease_to("n1")
    world.want("n1", vault="another", standing=HolderStanding.OTHER)
    await world.look_once()
    assert [each.vault for each in registrations(world.store.system)] == ["vault of n1"]
    world.group.clock.advance(60.0)
    await world.look_once()
    assert [each.vault for each in registrations(world.store.system)] == ["another"]


async def test_record_of_a_holder_that_has_left_is_removed_once_no_lease_of_it_is_left() -> None:
    world = World()
    await world.lease_to("n1")
    world.gone = True
    world.group.clock.advance(1.0)
    await world.look_once()
    assert [each.node for each in registrations(world.store.system)] == ["n1"]
    world.group.clock.advance(60.0)
    await world.look_once()
    assert list(registrations(world.store.system)) == []


async def test_holder_that_comes_back_before_its_removal_gets_leases_again() -> None:
    """The registry has stopped its leases, so that it can be removed."""
    world = World()
    await world.lease_to("n1")
    world.gone = True
    world.group.clock.advance(1.0)
    await world.look_once()
    world.gone = False
    world.lease_server.wanted.clear()
    world.group.clock.advance(1.0)
    await world.look_once()
    world.grant("n1")


def test_record_of_a_holder_has_everything_that_the_next_leader_counts_with() -> None:
    for given in (Registration("n1", "a vault", 3.0, True, 3.5), Registration("n1", "", 9.0, False)):
        read = registration_of("n1", value_of(given))
        assert replace(read, node="n1") == given


def test_active_nodes_follow_the_records() -> None:
    """Also those of an installed snapshot: what was read of the records before is void."""
    store = MetaStore(MemoryMap(), Limits())
    group, active = FakeGroup(store, Clock()), ActiveNodes(store.system)
    for number, standing in enumerate((NodeStanding.ACTIVE, NodeStanding.GONE, NodeStanding.ACTIVE), 1):
        record = NodeRecord("n1", NodeRole.FOLLOWER, standing, "i", 1, number, {})
        group.apply([encode_command(SystemWrite((), ((record.key, record.to_bytes()),)))])
        assert active.is_active("n1", number) == (standing is NodeStanding.ACTIVE)
        assert active.is_gone("n1") == (standing is NodeStanding.GONE)
        assert not active.is_active("n1", number - 1)


async def test_registration_is_bound_to_the_record_that_it_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another write came between the decision and its entry."""
    world = World()
    world.lead(TERM)
    world.want("n1")
    propose = world.group.propose

    async def overtaken(*arguments: Any, **options: Any) -> Any:
        other = SystemWrite((), (("holder/n1", value_of(Registration("n1", "another vault", 9.0))),))
        world.group.apply([encode_command(other)])
        return await propose(*arguments, **options)

    monkeypatch.setattr(world.group, "propose", overtaken)
    await world.look_once()
    assert [each.vault for each in registrations(world.store.system)] == ["another vault"]
    assert world.lease_server.core.registry.of("n1") is None
