"""The leader and the holder of `fencing_pair.py`, with a vault, a fence page and a reader of them, in simulated time:
any of their steps may occur between two steps of a read.

It is the ground of `retention_world.py`. Reads themselves are checked in the simulator (`tests/sim/readers.py`).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from palisade.fencing.holder_state import Holder
from palisade.fencing.stage_chain import Mark
from palisade.fencing.timing import FenceTiming
from palisade.metastore.requests import Command
from palisade.vault.fence_page import FENCE_BYTES, FencePage, FenceState
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.reader import VaultReader
from palisade.vault.vault import Vault
from tests.support.fencing_pair import Pair
from tests.support.vault_feed import follow, full, staged_of

BOOT = b"thisboot"
LEASE_NS = 30
TIMING = FenceTiming(fence_s=LEASE_NS, drift=0.0, margin_s=0.0)
"""The unit of all times here is a nanosecond."""
NODE = "n1"


class VaultPair(Pair):
    """Its only holder marks staged rows in the vault before it acknowledges them."""

    def __init__(self, marks: Callable[[Mark], None]) -> None:
        super().__init__(NODE, lm=1, now=1000, timing=TIMING)
        self._marks = marks

    @property
    def holder(self) -> Holder:
        return self.holders[NODE]

    def mark(self, name: str, mark: Mark) -> None:
        self._marks(mark)

    def promise(self) -> None:
        """The holder stops serving and tells the leader."""
        fenced = self.holder.unmarked(self.now)
        if fenced is not None:
            self.leader.fenced(self.holder.me, fenced, self.now)

    def restart(self, incarnation: int) -> None:
        self.holders[NODE] = self.process(NODE, incarnation)
        self.sessions.clear()


class FencedVault(ABC):
    """`fault`: the broken rule. One walk is one seed."""

    def __init__(self, seed: int, fault: str = "") -> None:
        self.rng = random.Random(seed)
        self.fault = fault
        self.driver = full([])
        self.pair = VaultPair(self.marks)
        self.backend = MemoryBackend()
        self.buffer = bytearray(FENCE_BYTES)
        self.starts = 0
        self.reading = False
        self.page, self.vault = self._start()
        self.reader = self._reader()

    @property
    def rr(self) -> int:
        return self.pair.leader.rr or 1

    # The cluster

    def committed(self, request: Command) -> None:
        """No node has learned it yet."""
        self.driver.do(request)
        self.pair.write()

    @abstractmethod
    def commit(self) -> None:
        """Any revision; calls `committed`."""

    def proceed(self) -> None:
        """The leader releases the permitted revisions."""
        self.pair.leader.advance(self.pair.now)

    def silence(self) -> None:
        """The node is paused, and with it its page; the cluster continues without it."""
        self.commit()
        self.pair.now += LEASE_NS
        self.proceed()

    def tick(self) -> None:
        self.pair.now += self.rng.randrange(16)

    # The node

    def _start(self) -> tuple[FencePage, Vault]:
        self.starts += 1
        page = FencePage(self.buffer, BOOT, first_sequence=self.starts << 32)
        vault = Vault(self.backend, page)
        if self.fault == "no_gate":
            vault.staging.superseded = lambda lv: {}  # type: ignore[method-assign]
        return page, vault

    def stage(self) -> None:
        if self.pair.holder.joined:
            self.pair.stage(NODE)

    def marks(self, mark: Mark) -> None:
        rows = [row for revision, _, _ in mark.rows for row in staged_of(self.driver, revision)]
        self.vault.staging.stage(rows, anew=mark.anew)

    def released(self) -> None:
        self.pair.deliver_release(NODE)
        self.vault.staging.release(self.pair.holder.released)

    def apply(self) -> None:
        """While the page is open, no further than RR."""
        gated = self.page.fence.state is FenceState.ACTIVE and self.fault != "no_gate"
        limit = min(self.driver.store.revision, self.vault.staging.released) if gated else self.driver.store.revision
        if limit > self.vault.revision:
            follow(self.vault, self.driver, self.rng.randint(self.vault.revision + 1, limit))

    def renew(self) -> None:
        if NODE in self.pair.sessions:
            self.pair.renew(NODE)
            self._publish()

    def recover(self) -> None:
        """From any state to ACTIVE: everything is applied, and marked as pending beyond RR."""
        self.lapse()
        if self.page.fence.state is FenceState.ACTIVE:
            return
        if self.vault.revision < self.driver.store.revision:
            follow(self.vault, self.driver)
        self.pair.serve(NODE)
        self.vault.staging.release(self.pair.holder.released)
        self._publish()

    def _publish(self) -> None:
        holder = self.pair.holder
        if holder.serves(self.pair.now):
            self.page.serve(int(holder.deadline), holder.term)

    def lapse(self) -> None:
        if self.pair.holder.tick(self.pair.now):
            self.page.refuse()

    def refuse(self, state: FenceState = FenceState.FENCED) -> None:
        """Stop serving first, then promise."""
        self.page.refuse(state)
        self.pair.promise()

    def restart(self) -> None:
        """The process dies and another one starts at once. No promise was made."""
        self.page, self.vault = self._start()
        self.pair.restart(self.starts)
        self.apply()

    # Any step

    def step(self) -> None:
        """Long periods of serving, with every event that may end them."""
        often = (self.commit, self.stage, self.proceed, self.released, self.apply, self.renew, self.recover)
        self.rng.choice(often if self.rng.random() < 0.9 else self.seldom)()

    @property
    def seldom(self) -> tuple[Callable[[], None], ...]:
        return (self.lapse, self.refuse, self.restart, self.silence, self.tick, self.tick)

    def between(self) -> None:
        """Between two steps of a read: every other event that may happen."""
        if not self.reading or self.rng.random() < 0.7:
            return
        for _ in range(self.rng.randrange(8)):
            often = (self.proceed, self.released, self.commit, self.apply, self.stage, self.stage)
            self.rng.choice(self.seldom if self.rng.random() < 0.1 else often)()

    # The reader

    def _reader(self) -> VaultReader:
        patience_s = 0 if self.fault == "no_deadline" else 2e-8
        reader = VaultReader.over(self.vault, clock_ns=self._clock, wait_s=patience_s, sleep=self._sleep)
        source: Any = reader._source
        source.begin = self._begin
        reader._trust(reader._fence, source)
        return reader

    def _clock(self) -> int:
        self.between()
        return 0 if self.fault == "no_deadline" else int(self.pair.now)

    def _sleep(self, _: float) -> None:
        self.pair.now += 5
        for _ in range(3):
            self.between()

    def _begin(self) -> Any:
        self.between()
        begun = self.backend.begin()
        self.between()
        return begun
