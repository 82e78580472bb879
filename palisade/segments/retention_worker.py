"""Removes the expired segments of this node, by rules that it reads through the fence (P6, F7, F11).

Guarantees, and why they hold:
- While the node is fenced or recovering, or the rules cannot be read, nothing is trashed, purged or restored: a failed
  read ends the pass.
- Deletion has two steps: a move into the trash, and permanent removal at least `trash_s` later. Directly before each
  step, in the thread that performs it, the rules are read again through the fence and must equal those of the pass, and
  wall time must still be steady. Once `unset ttl` has returned, every node has staged it or is fenced, so the next read
  prevents deletion by the old rule. A pause between that read and the following system call cannot be excluded. Before
  a move into the trash it does no harm, because the next pass undoes the move; only before the purge can it lose data.
- At its next pass, the holder restores a trashed segment that is no longer expired.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from palisade.catalog.keys import TTL
from palisade.recovery.lifecycle import Component
from palisade.recovery.listeners import Listeners, Notification
from palisade.segments.expiry import Expiry
from palisade.segments.fenced_rules import RuleReader
from palisade.segments.holder import SegmentHolder
from palisade.segments.retention import Chosen, Rules, RulesUnknown, WallClock, choose, still_expired
from palisade.vault.fence_file import clock_ns
from palisade.vault.vault import Vault
from palisade.wire.segment_errors import SegmentError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """`look_s`: interval of the passes. `trash_s`: minimum time of a segment in the trash."""

    look_s: float = 10.0
    trash_s: float = 600.0


def system_clocks() -> tuple[float, float]:
    """`expiry.Clocks` of this machine."""
    return time.time(), clock_ns() / 1e9


class RetentionWorker(Component):
    """`open_rules` is called at `start`, with the open vault."""

    def __init__(
        self,
        holder: SegmentHolder,
        listeners: Listeners,
        expiry: Expiry,
        open_rules: Callable[[Vault], RuleReader],
        pace: Pace | None = None,
    ) -> None:
        self.holder = holder
        self.pace = pace or Pace()
        self.wall = WallClock()
        self.expiry = expiry
        self._listeners, self._open_rules = listeners, open_rules
        self._reader: RuleReader | None = None
        self._since: dict[str, float] = {}
        self._wakeup = asyncio.Event()

    async def start(self) -> None:
        self._reader = self._open_rules(self.holder.vault)
        self._listeners.listen("retention", self._on_change, below=TTL)

    async def stop(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _on_change(self, notification: Notification) -> None:
        if any(event.key.startswith(TTL) for event in notification.events):
            self._wakeup.set()

    async def run(self) -> None:
        while True:
            self._wakeup.clear()
            await self.look_and_act()
            try:
                async with asyncio.timeout(self.pace.look_s):
                    await self._wakeup.wait()
            except TimeoutError:
                pass

    async def look_and_act(self) -> Chosen:
        """One pass. Returns its actions."""
        wall_s, boot_s = self.expiry.clocks()
        jumps = self.wall.jumps
        counts = self.wall.see(wall_s, boot_s)
        if self.wall.jumps > jumps:
            jumped_s = self.wall.jumped_s
            log.warning("wall clock jumped: jumped_s=%.1f; no segment expires until it is steady", jumped_s)
        try:
            rules = await self._require_reader().look()
        except RulesUnknown as error:
            self._refuse(str(error))
            return Chosen()
        steady_in_s = self.wall.settles_in_s(boot_s)
        self._note(None if counts else f"the wall clock is not steady yet, {steady_in_s:.0f} s left")
        self.expiry.passes += 1
        changed, self.expiry.rules = rules != self.expiry.rules, rules
        chosen = choose(rules, wall_s, counts, self._assigned_here(), self._in_trash(boot_s), self.pace.trash_s)
        self.expiry.failed = {
            name: why for name, why in self.expiry.failed.items() if name in chosen.trash + chosen.purge
        }
        if changed or chosen.restore:
            self.holder.wake()
        await self._act(chosen, rules)
        self._in_trash(self.expiry.clocks()[1])
        return chosen

    def _assigned_here(self) -> list[str]:
        """Names of the local segments that are assigned in their version; the holder removes all others."""
        held = self.holder.segment_store.held
        return [name for name, wanted in self.holder.wanted.items() if held.get(name) == wanted]

    def _in_trash(self, boot_s: float) -> dict[str, float]:
        """Seconds in the trash by name, counted from the start of this process."""
        self._since = {name: self._since.get(name, boot_s) for name in self.holder.segment_store.trashed}
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
            text = "expired segments removed: trashed=%d purged=%d still_to_trash=%d"
            log.info(text, trashed, purged, left)

    async def _some(self, most: int, names: tuple[str, ...], act: Callable[..., Awaitable[bool]], rules: Rules) -> int:
        """Performs at most `most` actions. Returns how many were done. Ends early if the rules change: each further
        action would withdraw an announcement in vain, and the next pass, which restores segments, would begin late.

        Raises RulesUnknown."""
        done = 0
        for name in names:
            if done == most or self._wakeup.is_set():
                break
            try:
                done += await act(name, partial(self._still, name, rules))
                self.expiry.failed.pop(name, None)
            except RulesUnknown:
                raise
            except SegmentError as error:
                self._note_failure(name, str(error))
        return done

    def _note_failure(self, name: str, why: str) -> None:
        if self.expiry.failed.get(name) != why:
            log.warning("%s; retrying at the next pass", why)
        self.expiry.failed[name] = why

    def _still(self, name: str, rules: Rules) -> bool:
        """Whether the segment still has to be removed. Called in the acting thread, directly before the system call.
        Raises RulesUnknown."""
        return still_expired(name, rules, self._require_reader().look_now(), self.wall, self.expiry.clocks())

    def _require_reader(self) -> RuleReader:
        if self._reader is None:
            raise RulesUnknown("the node has not started yet")
        return self._reader

    def _refuse(self, why: str) -> None:
        self.expiry.refused += 1
        self._note(why)

    def _note(self, why: str | None) -> None:
        if (why is None) != (self.expiry.trouble is None):
            log.info("retention %s", "resumed" if why is None else f"suspended: {why}")
        self.expiry.trouble = why
