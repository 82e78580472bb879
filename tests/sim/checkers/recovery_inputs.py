"""The inputs of a recovery are correct: LM, MM and the digest at LV from the cluster, LV from the vault (R3).

LM is read linearizably: at least the revision of any write acknowledged before the request, at most what is committed
when it is returned. MM is at most the greatest of any member. If the cluster has a digest at LV it is that of the
stores at that revision. `recovery_decision.py` judges the decisions on these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import palisade.recovery.follower
import palisade.recovery.recovery
from palisade.base.digest import DIGEST_BYTES
from palisade.recovery.decision import VaultState
from palisade.recovery.ports import SourceState
from palisade.recovery.remote_source import RemoteSource
from palisade.recovery.store_source import StoreSource
from palisade.vault.position import unpack_position
from palisade.vault.tables import VaultTable
from palisade.vault.vault import POSITION
from tests.sim.checkers.durable import acknowledged
from tests.sim.node import Host
from tests.sim.world import Checker, World


class RecoveryInputs(Checker):
    name = "recovery inputs"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chains: dict[int, bytes] = {}
        self._minimal = 1
        """The greatest MM that any member has had."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for source in (StoreSource, RemoteSource):
                patch.setattr(source, "state", self._recorded(source.state))
            for module in (palisade.recovery.recovery, palisade.recovery.follower):
                patch.setattr(module, "decide", self._decided(module.decide))  # type: ignore[attr-defined]
            yield

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        state = host.store._state
        self._chains.setdefault(state.revision, state.chain.to_bytes(DIGEST_BYTES, "big"))
        self._minimal = max(self._minimal, state.minimal_revision)

    def wired(self, host: Host) -> None:
        if not host.follows:
            self._minimal = max(self._minimal, host.store.minimal_revision)

    def _recorded(self, ask: Any) -> Any:
        async def recorded(source: Any, chain_at: int) -> SourceState:
            history, floor = self.world.history, acknowledged(self.world.history)
            state: SourceState = await ask(source, chain_at)
            if history is self.world.history and not self.world.is_down and state.generation == self.world.generation:
                self._judge(state, chain_at, floor)
            return state

        return recorded

    def _judge(self, state: SourceState, chain_at: int, floor: int) -> None:
        if not floor <= state.latest <= self.world.revision:
            self.fail(
                f"LM is reported as {state.latest}: {floor} had been acknowledged before the request, "
                f"{self.world.revision} is committed"
            )
        if state.minimal > self._minimal:
            self.fail(f"MM is reported as {state.minimal}, and no member has compacted beyond {self._minimal}")
        known = self._chains.get(chain_at)
        if None not in (state.chain_at, known) and state.chain_at != known:
            self.fail(f"the digest at {chain_at} is reported as {state.chain_at!r}, the stores had {known!r}")

    def _decided(self, decide: Any) -> Any:
        def decided(vault: VaultState, cluster: Any, options: Any) -> Any:
            backend = self.world.hosts[options.node_id].disk.backend
            held = unpack_position(backend.get(VaultTable.META, POSITION))
            if (vault.revision, vault.chain) != (held.revision, held.chain):
                self.fail(
                    f"{options.node_id} takes LV for {vault.revision} with {vault.chain!r}, and its vault has "
                    f"{held.revision} with {held.chain!r}"
                )
            return decide(vault, cluster, options)

        return decided
