"""A node that stores segments and checks their TTL rule through its fence, in simulated time: all other events of the
node and the cluster may occur between two steps of a check, and between a check and its action.

It is `fencing_world.py` with one holder, whose vault is one of the product, and with the worker. The property: nothing
is moved into the trash or deleted by a rule that was no longer in force, for any client that could know it, at the
node's last check before it (issue 4, F7, F11).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from palisade.catalog.ttl import TtlRule
from palisade.fencing.holder_state import Holder
from palisade.fencing.stage_chain import Mark
from palisade.metastore.requests import DeleteRange, Put
from palisade.recovery.listeners import Listeners
from palisade.segments.expiry import Expiry
from palisade.segments.fenced_rules import FencedRules, unfenced_rules
from palisade.segments.holder import SegmentHolder
from palisade.segments.names import TRASH
from palisade.segments.retention import Rules
from palisade.segments.retention_worker import Pace, RetentionWorker
from palisade.segments.segment_store import SegmentStore, file_of
from palisade.vault import vault as product
from palisade.vault.fence_page import FENCE_BYTES, FencePage, FenceState
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.reader import VaultReader
from tests.support.fencing_holders import HolderMoves, is_not_stopped, move, move_like, of_holders
from tests.support.fencing_parts import Scope, Vault
from tests.support.fencing_world import World
from tests.support.meta_driver import Driver
from tests.support.segment_names import name
from tests.support.segment_world import Files, SimulatedDisk, Stock
from tests.support.stepped_reader import Step, stepped_reader
from tests.support.vault_feed import follow, full, staged_of

DAYS = [name(day) for day in range(1, 5)]
WALL_S, UP_S = 1_700_000_000.0, 100_000.0
GO, KEEP = TtlRule("demo.flights", 1), TtlRule("demo.flights", 10**15)
KEY = GO.key
TRASH_S = 100.0
NO_END = 1 << 30
LEASE_TICKS = 5
"""After so many every lease has expired."""
WAIT_S = 1.3
"""How long a read waits for the release of a change: shorter than a lease."""
MOVES = {
    "commit": 4, "learn": 4, "stage": 4, "deliver": 10, "mark": 3, "advance": 4, "release": 4, "apply": 3, "renew": 3,
    "quorum": 1, "recover": 4, "calm": 1.5, "notice": 0.5, "refuse": 0.5, "reboot": 0.5, "tick": 1,
    "answered_without_the_node": 3,
}  # fmt: skip
"""Long periods of serving, with every event that may end them."""


class Violation(AssertionError):
    """An act that no linearizable read could justify."""


class StoredVault(Vault):
    """With a vault and a fence page of the product, which get what the driver has committed."""

    def __init__(self, name: str, driver: Driver, *, gated: bool) -> None:
        super().__init__(name)
        self._driver, self._gated = driver, gated
        self.backend, self._buffer, self._starts = MemoryBackend(), bytearray(FENCE_BYTES), 0
        self.open()

    def open(self) -> None:
        super().open()
        self._starts += 1
        self._published: Any = None
        self.page = FencePage(self._buffer, b"thisboot", first_sequence=self._starts << 32)
        self.product = product.Vault(self.backend, self.page)
        if not self._gated:
            self.product.staging.superseded = lambda lv: {}  # type: ignore[method-assign]

    def publish(self, holder: Holder) -> None:
        super().publish(holder)
        now = (holder.state, self.deadline, self.term)
        if now != self._published and self.active:
            self.page.serve(int(self.deadline * 1e9), self.term)
        elif now != self._published:
            self.page.refuse(FenceState[holder.state.name])
        self._published = now
        self.product.staging.release(self.released)

    def mark(self, mark: Mark) -> None:
        super().mark(mark)
        rows = [row for revision, _, _ in mark.rows for row in staged_of(self._driver, revision)]
        self.product.staging.stage(rows, anew=mark.anew)

    def follow(self) -> None:
        """In one commit."""
        follow(self.product, self._driver, self.lv)


class CheckedDisk(SimulatedDisk):
    """`world` advances before each action, and the action is checked."""

    def __init__(self, world: RetentionWorld) -> None:
        super().__init__(world.files)
        self._world = world

    async def rename_if(self, old: str, new: str, still: Callable[[], bool]) -> bool:
        return await super().rename_if(old, new, lambda: self._world.checked(still))

    async def remove_if(self, file: str, still: Callable[[], bool]) -> bool:
        return await super().remove_if(file, lambda: self._world.checked(still))


class LooksAtOnce(FencedRules):
    """Its waits are those of the simulation."""

    async def look(self) -> Rules:
        return self.look_now()


class PlainCache:
    """Planted: the rule as the vault has it, without checking the fence."""

    def __init__(self, vault: Callable[[], product.Vault]) -> None:
        self._vault = vault

    async def look(self) -> Rules:
        return self.look_now()

    def look_now(self) -> Rules:
        return unfenced_rules(self._vault())

    def close(self) -> None: ...


def any_rule(_: HolderMoves) -> list[TtlRule | None]:
    return [GO, GO, KEEP, None]


class RetentionWorld(World):
    """`fault`: 'plain_cache', 'no_look_at_the_act', 'no_deadline', 'no_gate'. `states`: of the rule, by revision. One
    walk is one seed."""

    def __init__(self, seed: int, fault: str = "") -> None:
        self.rng = random.Random(seed)
        self.fault = fault
        self.driver = full([])
        self.gated = fault != "no_gate"
        super().__init__(
            Scope(holders=1, keys=1, revisions=NO_END, ticks=NO_END, gated=self.gated, vault=self._new_vault)
        )
        super().commit(None)
        self.states: list[dict[bytes, bytes]] = [{}, {}]
        self.files, self.stock = Files(), Stock()
        self.jumped_s = self.later_s = 0.0
        self.acts = 0
        self.wild = False
        self.expiry = Expiry(self.clocks)
        self.holder = SegmentHolder(
            "n1", SegmentStore(CheckedDisk(self)), self.stock, Listeners(), retention=self.expiry
        )
        self.rules = PlainCache(lambda: self.vault) if fault == "plain_cache" else LooksAtOnce(self._reader())
        self.listeners = Listeners()
        self.worker = RetentionWorker(
            self.holder, self.listeners, self.expiry, lambda vault: self.rules, Pace(trash_s=TRASH_S)
        )
        if fault == "no_look_at_the_act":
            self.worker._still = lambda name, rules: True  # type: ignore[method-assign]

    def _new_vault(self, name: str) -> StoredVault:
        self.stored = StoredVault(name, self.driver, gated=self.gated)
        return self.stored

    async def begin(self) -> RetentionWorld:
        """The segments are stored, and the node serves."""
        self.holder.on(self.vault)
        self.holder.wanted = {name: self.stock.has(name, name.encode() * 9) for name in DAYS}
        await self.holder.local()
        await self.settle()
        await self.worker.start()
        self.recover()
        return self

    async def settle(self) -> None:
        await self.holder.on(self.vault)._settle()

    def clocks(self) -> tuple[float, float]:
        passed_s = self.now + self.later_s
        return WALL_S + passed_s + self.jumped_s, UP_S + passed_s

    # State

    @property
    def vault(self) -> product.Vault:
        return self.stored.product

    @property
    def here(self) -> set[str]:
        return {name for name in DAYS if file_of(name) in self.files.content}

    @property
    def in_trash(self) -> set[str]:
        return {name for name in DAYS if TRASH + file_of(name) in self.files.content}

    # Moves

    @move(any_rule)
    def commit(self, rule: TtlRule | None) -> None:
        """It is the rule from now on; None: there is none."""
        state = dict(self.states[-1])
        if rule is not None:
            state[KEY] = rule.to_bytes()
            self.driver.do(Put(KEY, state[KEY]))
        elif state.pop(KEY, None) is not None:
            self.driver.do(DeleteRange(KEY))
        else:
            return
        self.states.append(state)
        super().commit(None)

    def answered(self, rule: TtlRule | None) -> None:
        """Written and released: `set` or `unset ttl` has returned. The node takes part."""
        self.commit(rule)
        self.calm(0)
        self.catch_up()

    @move_like(World.apply)
    def apply(self, number: int) -> None:
        """One revision or more."""
        super().apply(number)
        while self.options("apply") and self.rng.random() < 0.5:
            super().apply(number)
        self.stored.follow()

    def catch_up(self) -> None:
        while self.options("apply"):
            self.apply(0)

    @move(any_rule)
    def answered_without_the_node(self, rule: TtlRule | None) -> None:
        """The same while the node is paused, and with it its page: its lease is waited for."""
        self.commit(rule)
        for _ in range(LEASE_TICKS):
            self.tick(None)
        self.do_all("learn", "advance")

    @move(lambda world: [] if world.serves(world.processes[0]) else [0])
    def recover(self, number: int = 0) -> None:
        """From any state to ACTIVE: every change is released and applied."""
        self.hello((number, 0))
        self.calm(0)

    @of_holders(is_not_stopped)
    def refuse(self, number: int = 0) -> None:
        """It stops serving, and promises: a snapshot is about to be loaded."""
        self._answer(number, self._call(number, "unmarked"))

    def some(self, most: int) -> None:
        """Steps at random, fewer than `most`."""
        moves = self.rng.choices(tuple(MOVES), tuple(MOVES.values()), k=self.rng.randrange(most))
        for _ in self.take(moves, self.rng):
            pass

    # The reader

    def _reader(self) -> VaultReader:
        ignores_time = self.fault == "no_deadline"
        return stepped_reader(
            self.vault,
            self._between,
            clock_ns=lambda: 0 if ignores_time else int(self._clock_of(0) * 1e9),
            sleep=self._sleep,
            wait_s=0 if ignores_time else WAIT_S,
        )

    def _between(self, _: Step | None = None) -> None:
        """Two steps of a read: everything else may happen."""
        if self.wild and self.rng.random() < 0.2:
            self.some(6)

    def _sleep(self, _: float) -> None:
        self.tick(None)
        for _ in range(3):
            self._between()

    # Passes of the worker

    async def pass_by(self) -> None:
        await self.worker.look_and_act()

    def checked(self, still: Callable[[], bool]) -> bool:
        if self.wild:
            self.some(6)
        since = self.shown[0]
        if not still():
            return False
        self.acts += 1
        possible = self.states[since : self.shown[0] + 1]
        if not any(Rules(state).expires(DAYS[0], self.clocks()[0]) for state in possible):
            raise Violation(f"a segment went by a rule that had gone before RR {since}: {possible[0]}")
        return True

    async def walk_about(self, passes: int = 20) -> int:
        """Returns how much was trashed and deleted. Raises Violation."""
        self.wild = True
        for _ in range(passes):
            self.some(8)
            self.later_s += self.rng.choice([1.0, TRASH_S])
            await self.pass_by()
            await self.settle()
            self.settled()
        return self.acts

    def settled(self) -> None:
        """No segment is missing that is neither in the trash nor past its TTL."""
        gone = set(DAYS) - self.here - self.in_trash
        if any(not self.holder.is_expired(name) for name in gone):
            raise Violation(f"{sorted(gone)} did not come back")
