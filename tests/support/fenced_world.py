"""A leader and one holder with a reader, in simulated time: any of their steps may occur between two steps of a read.

The leader is the smallest that keeps the rules of design.md ("Released revision", "Revision-bound leases"): a revision
is released when the holder has staged it, or has promised, or its lease from before the commit has expired. It is the
ground of `retention_world.py`; reads themselves are checked in the simulator (`tests/sim/readers.py`).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from palisade.vault.fence_page import FENCE_BYTES, FencePage, FenceState
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.reader import VaultReader
from palisade.vault.vault import Vault
from tests.support.vault_feed import follow, full, staged_of

BOOT = b"thisboot"
LEASE_NS = 30


class Violation(AssertionError):
    """An act that no linearizable read could justify."""


class World(ABC):
    """`fault`: the broken rule. One walk is one seed."""

    def __init__(self, seed: int, fault: str = "") -> None:
        self.rng = random.Random(seed)
        self.fault = fault
        self.now = 1000
        self.driver = full([])
        self.states: list[dict[bytes, bytes]] = [{}, {}]
        self.rr = 1
        self.acked = 1
        self.promised = False
        self.last_grant = 0
        self.barrier: dict[int, int] = {}
        self.backend = MemoryBackend()
        self.buffer = bytearray(FENCE_BYTES)
        self.starts = 0
        self.reading = False
        self.page, self.vault = self._start()
        self.reader = self._reader()

    # The node

    def _start(self) -> tuple[FencePage, Vault]:
        self.starts += 1
        page = FencePage(self.buffer, BOOT, first_sequence=self.starts << 32)
        vault = Vault(self.backend, page)
        self.staged = 0
        if self.fault == "no_gate":
            vault.staging.superseded = lambda lv: {}  # type: ignore[method-assign]
        return page, vault

    @property
    def lm(self) -> int:
        return self.driver.store.revision

    @property
    def serving(self) -> bool:
        return self.staged > 0 and self.now < self.page.fence.deadline_ns

    # Steps

    @abstractmethod
    def commit(self) -> None:
        """One revision; calls `committed`."""

    def committed(self, state: dict[bytes, bytes]) -> None:
        """The latest revision has this state."""
        self.states.append(state)
        self.barrier[self.lm] = self.last_grant

    def stage(self) -> None:
        """Committed in the vault, then published, then answered."""
        if not self.staged or self.staged >= self.lm:
            return
        rows = [row for number in range(self.staged + 1, self.lm + 1) for row in staged_of(self.driver, number)]
        self.staged = self.lm
        self.vault.staging.stage(rows)
        self.acked = max(self.acked, self.staged)

    def proceed(self) -> None:
        """The leader releases the permitted revisions."""
        while self.rr < self.lm:
            following = self.rr + 1
            out = self.now >= self.barrier[following] + LEASE_NS
            if not (self.acked >= following or self.promised or out):
                return
            self.rr = following

    def released(self) -> None:
        if self.staged:
            self.vault.staging.release(min(self.rr, self.staged))

    def apply(self) -> None:
        """While the node serves, no further than RR."""
        served = self.page.fence.state is FenceState.ACTIVE
        limit = self.lm if not served or self.fault == "no_gate" else min(self.lm, self.vault.staging.released)
        if limit > self.vault.revision:
            follow(self.vault, self.driver, self.rng.randint(self.vault.revision + 1, limit))

    def renew(self) -> None:
        """Requested, granted with LM required, and accepted; the deadline counts from the request."""
        if self.serving and self.staged >= self.lm:
            self.last_grant, self.promised = self.now, False
            self.page.serve(self.now + LEASE_NS, 1)

    def recover(self) -> None:
        """From FENCED, with everything up to RR applied and the rest pending again."""
        self.lapse()
        if self.page.fence.state is FenceState.ACTIVE:
            return
        if self.vault.revision < self.rr:
            follow(self.vault, self.driver, self.rr)
        pending = [row for number in range(self.rr + 1, self.lm + 1) for row in staged_of(self.driver, number)]
        self.vault.staging.stage(pending, anew=True)
        self.vault.staging.release(self.rr)
        self.staged = self.acked = self.lm
        self.last_grant, self.promised = self.now, False
        self.page.serve(self.now + LEASE_NS, 1)

    def lapse(self) -> None:
        if self.page.fence.state is FenceState.ACTIVE and self.now >= self.page.fence.deadline_ns:
            self._down()

    def stop_politely(self) -> None:
        """Stop serving first, then promise."""
        if self.staged:
            self._down()
            self.promised = True

    def _down(self) -> None:
        self.page.refuse()
        self.staged = 0

    def restart(self) -> None:
        """The process dies and another one starts at once: no promise was made, the page is unchanged."""
        self.page, self.vault = self._start()
        self.apply()

    def silence(self) -> None:
        """The node is paused, and with it its page; the cluster continues without it."""
        self.commit()
        self.now += LEASE_NS
        self.proceed()

    def tick(self) -> None:
        self.now += self.rng.randrange(16)

    def step(self) -> None:
        """Long periods of serving, with every event that may end them."""
        often = (self.commit, self.stage, self.proceed, self.released, self.apply, self.renew, self.recover)
        self.rng.choice(often if self.rng.random() < 0.9 else self.seldom)()

    @property
    def seldom(self) -> tuple[Callable[[], None], ...]:
        return (self.lapse, self.stop_politely, self.restart, self.silence, self.tick, self.tick)

    # The reader

    def between(self) -> None:
        """Between two steps of a read: every other event that may happen."""
        if not self.reading or self.rng.random() < 0.7:
            return
        for _ in range(self.rng.randrange(8)):
            often = (self.proceed, self.released, self.commit, self.apply, self.stage, self.stage)
            self.rng.choice(self.seldom if self.rng.random() < 0.1 else often)()

    def _reader(self) -> VaultReader:
        patience_s = 0 if self.fault == "no_deadline" else 2e-8
        reader = VaultReader.over(self.vault, clock_ns=self._clock, wait_s=patience_s, sleep=self._sleep)
        source: Any = reader._source
        source.begin = self._begin
        reader._trust(reader._fence, source)
        return reader

    def _clock(self) -> int:
        self.between()
        return 0 if self.fault == "no_deadline" else self.now

    def _sleep(self, _: float) -> None:
        self.now += 5
        for _ in range(3):
            self.between()

    def _begin(self) -> Any:
        self.between()
        begun = self.backend.begin()
        self.between()
        return begun
