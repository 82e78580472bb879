"""A node that stores segments and checks their TTL rule through its fence, in simulated time: all other events of the
node and the cluster may occur between two steps of a check, and between a check and its action.

The property: nothing is moved into the trash or deleted by a rule that was no longer in force, for any client that
could know it, at the node's last check before it (issue 4, F7, F11).
"""

from __future__ import annotations

from collections.abc import Callable

from palisade.catalog.ttl import TtlRule
from palisade.metastore.requests import DeleteRange, Put
from palisade.recovery.listeners import Listeners
from palisade.segments.expiry import Expiry
from palisade.segments.fenced_rules import FencedRules, unfenced_rules
from palisade.segments.holder import SegmentHolder
from palisade.segments.names import TRASH
from palisade.segments.retention import Chosen, Rules
from palisade.segments.retention_worker import Pace, RetentionWorker
from palisade.segments.segment_store import SegmentStore, file_of
from tests.support.fenced_vault import LEASE_NS, FencedVault
from tests.support.segment_names import name
from tests.support.segment_world import Files, SimulatedDisk, Stock

DAYS = [name(day) for day in range(1, 5)]
WALL_S, UP_S = 1_700_000_000.0, 100_000.0
GO, KEEP = TtlRule("demo.flights", 1), TtlRule("demo.flights", 10**15)
KEY = GO.key
TRASH_S = 100.0


class Violation(AssertionError):
    """An act that no linearizable read could justify."""


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

    def __init__(self, world: RetentionWorld) -> None:
        self._world = world

    async def look(self) -> Rules:
        return self.look_now()

    def look_now(self) -> Rules:
        return unfenced_rules(self._world.vault)

    def close(self) -> None: ...


class RetentionWorld(FencedVault):
    """`fault`: 'plain_cache', 'no_look_at_the_act', or one of a FencedVault's. `states`: of the rule, by revision."""

    def __init__(self, seed: int, fault: str = "") -> None:
        super().__init__(seed, fault)
        self.states: list[dict[bytes, bytes]] = [{}, {}]
        self.files, self.stock = Files(), Stock()
        self.jumped_s = self.later_s = 0.0
        self.acts = 0
        self.wild = False
        self.expiry = Expiry(self.clocks)
        self.holder = SegmentHolder(
            "n1", SegmentStore(CheckedDisk(self)), self.stock, Listeners(), retention=self.expiry
        )
        self.rules = PlainCache(self) if fault == "plain_cache" else LooksAtOnce(self.reader)
        self.worker = RetentionWorker(
            self.holder, Listeners(), self.expiry, lambda vault: self.rules, Pace(trash_s=TRASH_S)
        )
        if fault == "no_look_at_the_act":
            self.worker._still = lambda name, rules: True  # type: ignore[method-assign]

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
        passed_s = self.pair.now / 1e9 + self.later_s
        return WALL_S + passed_s + self.jumped_s, UP_S + passed_s

    # State

    @property
    def here(self) -> set[str]:
        return {name for name in DAYS if file_of(name) in self.files.content}

    @property
    def in_trash(self) -> set[str]:
        return {name for name in DAYS if TRASH + file_of(name) in self.files.content}

    # Steps

    def write(self, rule: TtlRule | None) -> None:
        state = dict(self.states[-1])
        if rule is not None:
            state[KEY] = rule.to_bytes()
            self.committed(Put(KEY, state[KEY]))
        elif state.pop(KEY, None) is not None:
            self.committed(DeleteRange(KEY))
        else:
            return
        self.states.append(state)

    def commit(self) -> None:
        self.write(self.rng.choice([GO, GO, KEEP, None]))

    def answered(self, rule: TtlRule | None) -> None:
        """Written and released: `set` or `unset ttl` has returned. The node takes part."""
        self.write(rule)
        self.stage()
        self.proceed()
        self.released()
        self.apply()
        self.renew()

    def answered_without_the_node(self, rule: TtlRule | None) -> None:
        """The same while the node is paused: its lease is waited for."""
        self.write(rule)
        self.pair.now += LEASE_NS
        self.proceed()

    async def pass_by(self) -> Chosen:
        self.reading = self.wild
        try:
            return await self.worker.look_and_act()
        finally:
            self.reading = False

    def checked(self, still: Callable[[], bool]) -> bool:
        if self.wild:
            for _ in range(self.rng.randrange(3)):
                self.step()
        since = self.rr
        if not still():
            return False
        self.acts += 1
        possible = self.states[since : self.rr + 1]
        if not any(Rules(state).expires(DAYS[0], self.clocks()[0]) for state in possible):
            raise Violation(f"a segment went by a rule that had gone before RR {since}: {possible[0]}")
        return True

    async def walk_about(self, passes: int = 20) -> int:
        """Returns how much was trashed and deleted. Raises Violation."""
        self.wild = True
        for _ in range(passes):
            for _ in range(self.rng.randrange(8)):
                self.step()
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
