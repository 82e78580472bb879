"""Faults do what they say: whom an isolation cuts off, and for how long."""

from __future__ import annotations

from tests.sim.clients import Client
from tests.sim.faults import Fault, Kind
from tests.sim.nemesis import DEAF_FROM, Nemesis
from tests.sim.world import Settings, World


def isolated(amount: float) -> World:
    """n2, half a second after it was cut off for a second; no node was started."""
    world = World(1, Settings())
    Client(world, "c1")
    Nemesis(world, (Fault(0.0, Kind.ISOLATE, "n2", "n1", 1.0, amount),)).start()
    world.simulation.run_for(0.5)
    return world


def test_a_node_that_is_isolated_is_cut_off_from_clients_where_the_fault_says_so() -> None:
    world = isolated(DEAF_FROM + 0.01)
    assert not world.network.passes("n2", "n1")
    assert not world.network.passes("c1", "n2")
    assert not world.network.passes("n2", "c1")
    assert world.network.passes("c1", "n1")
    world.simulation.run_for(1.0)
    assert not world.network.blocked
    world.close()


def test_a_node_that_is_cut_off_from_the_others_may_still_be_asked() -> None:
    """The more dangerous one: what it answers then is what its lease and its barrier are for."""
    world = isolated(DEAF_FROM - 0.01)
    assert not world.network.passes("n2", "f1")
    assert world.network.passes("c1", "n2")
    assert world.network.passes("n2", "c1")
    world.close()
