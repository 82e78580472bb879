"""A leader grants no lease to a vault of another history: it may hold changes that never happened in this one (F1,
R7)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from palisade.fencing.messages import UNKNOWN, Hello, HolderId, HolderPhase, RefusedMessage, Renew, WelcomeMessage
from palisade.fencing.registry import registration_of
from palisade.fencing.timing import FenceTiming
from palisade.node.fencing.leader_connection import RETRY_S, LeaderLink
from palisade.node.fencing.lease_client import LeaseClient
from palisade.node.fencing.lease_server import ClusterView, HolderConnection, LeaseServer
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.position import VaultLineage
from palisade.vault.vault import Vault
from tests.support.waiting import until

TIMING = FenceTiming()
HELLO = Hello(HolderId("f1", "v", 3), True, TIMING.fence_s, HolderPhase.ACTIVE, 2, True, 100, 100, TIMING.proceed_s())
RENEW = Renew(99.0, 100, HolderPhase.ACTIVE, True, TIMING.fence_s, TIMING.proceed_s())


class Leader:
    """The leader of `generation` (without one, it accepts all holders), at revision 80. `f1` is a holder according to
    the record in the backup."""

    def __init__(self, generation: int = 2) -> None:
        log = SimpleNamespace(latest=80, since=lambda after: [])
        released: Any = SimpleNamespace(log=log, pass_on=lambda committed: None, release=lambda revision: None)
        self.lease_server = LeaseServer(
            released,
            TIMING,
            lambda: 100.0,
            ClusterView(lambda: True, lambda: None, lambda node, incarnation: True, lambda: generation),
            on_failed=pytest.fail,
        )
        self.lease_server._soon = lambda: None  # type: ignore[method-assign]
        self.lease_server._arm = lambda now: None  # type: ignore[method-assign]
        self.lease_server.begin_term(5, [registration_of(HELLO)])
        self.said: list[Any] = []
        self.closed = 0

    def connected(self) -> HolderConnection:
        return HolderConnection(self.said.append, self._close)

    def _close(self) -> None:
        self.closed += 1


def test_holder_with_a_vault_of_another_history_is_refused() -> None:
    """tests/sim, scenario restores, seed 6: a follower that kept running across a restore served lost changes."""
    leader = Leader()
    connection = leader.connected()
    leader.lease_server.receive(connection, replace(HELLO, generation=1))
    leader.lease_server.receive(connection, RENEW)
    leader.lease_server.turn()
    assert [type(each) for each in leader.said] == [RefusedMessage]
    assert "generation 1" in leader.said[0].reason
    assert "generation 2" in leader.said[0].reason
    assert (leader.closed, leader.lease_server.granted, list(leader.lease_server.connections)) == (1, 0, [])


def test_stages_of_a_refused_holder_release_nothing() -> None:
    """Its revision 100 is of another history."""
    leader = Leader()
    other, own = leader.connected(), leader.connected()
    for connection, generation in ((other, 1), (own, 2)):
        assert leader.lease_server.core.rr is None
        leader.lease_server.receive(connection, replace(HELLO, generation=generation))
        leader.lease_server.receive(connection, RENEW)
        leader.lease_server.turn()
    assert leader.lease_server.core.rr == 80


def test_refused_holder_replaces_no_connection() -> None:
    leader = Leader()
    own = leader.connected()
    leader.lease_server.receive(own, replace(HELLO, generation=2))
    leader.lease_server.receive(leader.connected(), replace(HELLO, generation=1))
    assert list(leader.lease_server.connections) == [own]


@pytest.mark.parametrize(("generation", "answer"), [(0, RefusedMessage), (2, WelcomeMessage)])
def test_vault_of_this_history_is_welcome_and_one_of_none_is_deferred(generation: int, answer: type) -> None:
    leader = Leader()
    leader.lease_server.receive(leader.connected(), replace(HELLO, generation=generation))
    assert [type(each) for each in leader.said] == [answer]


class Here:
    """The holder is the leader's own node."""

    def leads_here(self) -> bool:
        return True

    def leader(self) -> None:
        return None

    def candidates(self) -> tuple[str, ...]:
        return ()


async def test_node_whose_vault_has_no_history_receives_no_releases() -> None:
    """tests/sim, scenario restores, seed 501036: the node kept running across a restore before its first request, and
    RR 43 of the lost history would have counted in the restored one, which was at 34."""
    vault = Vault(MemoryBackend())
    holder = LeaseClient("f1", "v", vault, TIMING, lambda: 1.0, lambda revision: None)
    link = LeaderLink(holder, Here(), "f1", Leader(UNKNOWN).lease_server)
    running = asyncio.get_running_loop().create_task(link.run())
    await asyncio.sleep(3 * RETRY_S)
    assert (link.at, holder.welcomed) == (None, False)
    vault.claim(VaultLineage("c", 2, "f1"))
    await until(lambda: holder.welcomed)
    assert link.at is not None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_hello_names_the_history_of_the_vault() -> None:
    vault = Vault(MemoryBackend())
    holder = LeaseClient("f1", "v", vault, TIMING, lambda: 1.0, lambda revision: None)
    said: list[Any] = []
    holder.connected(said.append)
    vault.claim(VaultLineage("c", 7, "f1"))
    holder.connected(said.append)
    assert [hello.generation for hello in said] == [0, 7]
