"""Removes the partitions of this node that are past their time, by rules that it reads through the fence (P6, F7, F11).

What holds, and why:
- While the node is fenced or recovers, or the rules can't be read, nothing is trashed, purged or brought back: a look
  that is refused ends the pass.
- A deletion is two steps: into the trash, and, after `trash_s` there, out of it for good. Directly before each, in the
  thread that acts, the rules are read again through the fence and must be those that the pass began with; and wall time
  must still count. So once `unset ttl` has returned, every node has staged it or is fenced, and its next look does not
  let the old rule through. A pause between that look and the system call behind it can't be excluded by anybody; it can
  delay a move into the trash, which the next look undoes, and would have to hit the one call that purges.
- What is in the trash and is not past its time any more is taken out by the holder, at the next look.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from catalog.keys import TTL
from node.components.lifecycle import Component
from node.components.listeners import Listeners, Told
from node.partitions.errors import PartitionError
from node.partitions.fenced_rules import RuleReader, unfenced_rules
from node.partitions.holder import PartitionHolder
from node.partitions.retention import Chosen, Rules, RulesUnknown, WallClock, choose
from vault.errors import VaultError
from vault.fence_file import clock_ns
from vault.vault import Vault

log = logging.getLogger(__name__)

Clocks = Callable[[], tuple[float, float]]
"""Wall time since 1970, and the boot clock, which goes on while the machine is suspended; in seconds."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`look_s`: from one pass to the next. `trash_s`: how long a partition stays in the trash at least."""

    look_s: float = 10.0
    trash_s: float = 600.0


def system_clocks() -> tuple[float, float]:
    return time.time(), clock_ns() / 1e9


class RetentionWorker(Component):
    """`open_rules` is called with the vault when it is whole."""

    def __init__(
        self,
        holder: PartitionHolder,
        listeners: Listeners,
        clocks: Clocks,
        open_rules: Callable[[Vault], RuleReader],
        pace: Pace | None = None,
    ) -> None:
        self.holder = holder
        self.pace = pace or Pace()
        self.trouble: str | None = "it has not looked yet"
        """Why nothing is past its time now; None while the rules were read and the clock counts."""
        self.passes = self.refused = 0
        self.failed: dict[str, str] = {}
        """What the disk refuses to let go, and why."""
        self.rules: Rules | None = None
        """Of the last look."""
        self.wall = WallClock()
        self._listeners, self._clocks, self._open_rules = listeners, clocks, open_rules
        self._reader: RuleReader | None = None
        self._since: dict[str, float] = {}
        self._unfenced: tuple[int, Rules] = (-1, Rules())
        self._news = asyncio.Event()
        holder.is_expired = self.is_expired
        holder.retention_view = self.view

    async def start(self) -> None:
        self._reader = self._open_rules(self.holder.vault)
        self._listeners.listen("retention", self._hear)

    async def stop(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _hear(self, told: Told) -> None:
        if any(event.key.startswith(TTL) for event in told.events):
            self._news.set()

    async def run(self) -> None:
        while True:
            self._news.clear()
            await self.look_and_act()
            try:
                async with asyncio.timeout(self.pace.look_s):
                    await self._news.wait()
            except TimeoutError:
                pass

    def is_expired(self, name: str) -> bool:
        """Whether a partition is not worth fetching: by the last look, before the first one by the vault itself."""
        rules = self.rules
        if rules is None:
            rules = self._rules_of_vault()
        return rules.expires(name, self._clocks()[0])

    def _rules_of_vault(self) -> Rules:
        vault = self.holder.vault
        if self._unfenced[0] != vault.revision:
            try:
                self._unfenced = vault.revision, unfenced_rules(vault)
            except VaultError:
                return Rules()
        return self._unfenced[1]

    async def look_and_act(self) -> Chosen:
        """One pass: what it could do."""
        wall_s, boot_s = self._clocks()
        jumps = self.wall.jumps
        counts = self.wall.see(wall_s, boot_s)
        if self.wall.jumps > jumps:
            jumped_s = self.wall.jumped_s
            log.warning("the wall clock has jumped by %.1f s: nothing is past its time until it is steady", jumped_s)
        try:
            rules = await self._require_reader().look()
        except RulesUnknown as error:
            self._refuse(str(error))
            return Chosen()
        self._note(None if counts else f"the wall clock is not steady for {self.wall.settles_in_s(boot_s):.0f} s yet")
        self.passes += 1
        changed, self.rules = rules != self.rules, rules
        chosen = choose(rules, wall_s, counts, self._assigned_here(), self._in_trash(boot_s), self.pace.trash_s)
        self.failed = {name: why for name, why in self.failed.items() if name in chosen.trash + chosen.purge}
        if changed or chosen.restore:
            self.holder.wake()
        await self._act(chosen, rules)
        self._in_trash(self._clocks()[1])
        return chosen

    def _assigned_here(self) -> list[str]:
        """What is here and assigned here: the rest goes without a rule."""
        held = self.holder.shelf.held
        return [name for name, wanted in self.holder.wanted.items() if held.get(name) == wanted]

    def _in_trash(self, boot_s: float) -> dict[str, float]:
        """For how long, as far as this process knows."""
        self._since = {name: self._since.get(name, boot_s) for name in self.holder.shelf.trashed}
        return {name: boot_s - since_s for name, since_s in self._since.items()}

    async def _act(self, chosen: Chosen, rules: Rules) -> None:
        try:
            trashed = await self._some(chosen.most, chosen.trash, self.holder.trash, rules)
            purged = await self._some(chosen.most, chosen.purge, self.holder.purge, rules)
        except RulesUnknown as error:
            self._refuse(str(error))
            return
        if trashed or purged:
            left = len(chosen.trash) - trashed
            text = "partitions past their TTL: %d moved into the trash, %d removed for good; %d to go"
            log.info(text, trashed, purged, left)

    async def _some(self, most: int, names: tuple[str, ...], act: Callable[..., Awaitable[bool]], rules: Rules) -> int:
        """How many were done. Raises RulesUnknown."""
        done = 0
        for name in names:
            if done == most:
                break
            try:
                done += await act(name, partial(self._still, name, rules))
                self.failed.pop(name, None)
            except RulesUnknown:
                raise
            except PartitionError as error:
                self._note_failure(name, str(error))
        return done

    def _note_failure(self, name: str, why: str) -> None:
        if self.failed.get(name) != why:
            log.warning("%s; it is tried again", why)
        self.failed[name] = why

    def _still(self, name: str, rules: Rules) -> bool:
        """In the thread that acts, directly before it does. Raises RulesUnknown."""
        again = self._require_reader().look_now()
        wall_s, boot_s = self._clocks()
        return again.of(name) == rules.of(name) and self.wall.still(wall_s, boot_s) and again.expires(name, wall_s)

    def _require_reader(self) -> RuleReader:
        if self._reader is None:
            raise RulesUnknown("the node has not started yet")
        return self._reader

    def _refuse(self, why: str) -> None:
        self.refused += 1
        self._note(why)

    def _note(self, why: str | None) -> None:
        if (why is None) != (self.trouble is None):
            log.info("retention: %s", "the rules count" if why is None else f"nothing is past its time: {why}")
        self.trouble = why

    def view(self) -> dict[str, Any]:
        """Shape `retention` of `Partitions`."""
        why = self.trouble or next(iter(self.failed.values()), None)
        return {"works": self.trouble is None, "why": why, "passes": self.passes, "refused": self.refused}
