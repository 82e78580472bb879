"""A node's holder and its vault's gate: nothing is served while a batch that was let in is on its way (issue 16)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.fencing.messages import GrantMessage, HolderPhase, JoinMessage, Renew, StageMessage, WelcomeMessage
from palisade.fencing.timing import FenceTiming
from palisade.node.fencing.lease_client import LeaseClient
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.position import VaultLineage
from palisade.vault.vault import Vault
from tests.support.vault_feed import follow, full, revisions

TERM, INCARNATION = 7, 3


class Node:
    """A holder that is welcomed, has joined at LV 0, and whose recovery listeners are at work; its leader is played."""

    def __init__(self) -> None:
        self.now = 100.0
        self.said: list[Any] = []
        self.vault = Vault(MemoryBackend())
        self.vault.claim(VaultLineage("c", 1, "f1"))
        self.holder = LeaseClient("f1", "v", self.vault, FenceTiming(), lambda: self.now, lambda revision: None)
        self.gate = self.holder.gate
        self.holder.set_incarnation(INCARNATION)
        self.holder.connected(self.said.append)
        self.holder.recovering(False)
        self.holder.deliver(WelcomeMessage(TERM, 0, 0))
        join = next(each for each in self.said if isinstance(each, JoinMessage))
        self.holder.deliver(StageMessage(TERM, join.chain, 0, 0, ()))
        self.core = self.holder.begin_recovery()

    def is_granted_a_lease(self) -> None:
        self.now += 0.01
        self.holder.renew_if_due()
        asked = [each for each in self.said if isinstance(each, Renew)][-1]
        assert asked.asks
        self.holder.deliver(GrantMessage(TERM, INCARNATION, asked.t0, 0))

    @property
    def phase(self) -> HolderPhase:
        return self.core.state


def test_holder_becomes_active_once_its_listeners_are_done() -> None:
    node = Node()
    node.is_granted_a_lease()
    assert node.phase is HolderPhase.RECOVERING
    node.holder.recovered(node.core)
    assert node.phase is HolderPhase.ACTIVE


@pytest.mark.parametrize("by", ["revisions", "leap"])
def test_holder_waits_for_a_batch_that_was_let_in_while_it_was_fenced(by: str) -> None:
    """The batch may have strict changes that are not released: once it is in, the vault is beyond what is staged."""
    node, cluster = Node(), full([(b"palisade/x", b"1")])
    node.is_granted_a_lease()
    if by == "leap":
        assert node.gate.enter_leap(2)
    else:
        assert node.gate.enter(revisions(cluster, 1)) == 2
    node.holder.recovered(node.core)
    node.holder.settle()
    assert node.phase is HolderPhase.RECOVERING
    follow(node.vault, cluster)
    node.gate.leave()
    assert node.phase is HolderPhase.RECOVERING, "not before what it shows is staged"


def test_holder_becomes_active_when_the_batch_has_changed_nothing() -> None:
    node = Node()
    node.is_granted_a_lease()
    assert node.gate.enter_leap(2)
    node.holder.recovered(node.core)
    assert node.phase is HolderPhase.RECOVERING
    node.gate.leave()
    assert node.phase is HolderPhase.ACTIVE


def test_holder_waits_for_a_leap_of_its_vault() -> None:
    """Its marks are written with the leap."""
    node = Node()
    node.is_granted_a_lease()
    node.vault.staging.leap_begins()
    node.holder.recovered(node.core)
    assert node.phase is HolderPhase.RECOVERING
    node.vault.staging.leap_ends()
    node.holder.settle()
    assert node.phase is HolderPhase.ACTIVE


def test_holder_waits_for_its_vault_to_catch_up() -> None:
    node = Node()
    node.is_granted_a_lease()
    node.holder.caught_up = False
    node.holder.recovered(node.core)
    assert node.phase is HolderPhase.RECOVERING
