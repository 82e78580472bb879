"""The lease client of a node: keeps its leases, its vault and its fence page consistent. Synchronous; time is handed
in.

`fencing.holder_state.Holder` decides; this module executes, in an order that keeps its statements true:

- the page is FENCED before a promise leaves, and before a vault that is not gated continues;
- marks are committed to the vault, and published by the page, before STAGED leaves;
- the page becomes ACTIVE only in the turn in which LV was compared with the staged revision, with no commit in
  progress.

A node that was dropped from the topology, or has a new incarnation, starts with a new state machine without grants: so
earlier grants are void for it. A node whose vault recovers has to join again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from palisade.fencing.holder_state import Holder
from palisade.fencing.lease import GrantVerdict
from palisade.fencing.messages import (
    UNKNOWN,
    Behind,
    GrantMessage,
    Hello,
    HolderId,
    HolderPhase,
    Release,
    StagedMessage,
    StageMessage,
    WelcomeMessage,
)
from palisade.fencing.stage_chain import Mark, NotMarked
from palisade.fencing.timing import FenceTiming
from palisade.node.fencing.vault_gate import VaultGate
from palisade.service.strict_changes import StrictLog
from palisade.service.strict_commands import Prefixes
from palisade.vault.fence_page import FenceState
from palisade.vault.vault import Vault
from palisade.wire.fence_messages import FromHolder, FromLeader

log = logging.getLogger(__name__)

CHECK_S_MAX = 0.25
"""Longest pause between two checks. Timers stop while the machine is suspended; the clock of the lease does not."""
BEHIND_S = 0.1
"""How long a vault that is too far behind catches up before it requests a lease again."""

Send = Callable[[FromHolder], None]


class LeaseClient:
    """`node` and `vault_id` identify it. `on_released`: called with RR, each time that it has grown. `log`: of a member
    of the group; None on a follower."""

    def __init__(
        self,
        node: str,
        vault_id: str,
        vault: Vault,
        timing: FenceTiming,
        now: Callable[[], float],
        on_released: Callable[[int], None],
        log: StrictLog | None = None,
    ) -> None:
        self.vault = vault
        self._node, self._vault_id = node, vault_id
        self._timing, self._now, self._on_released = timing, now, on_released
        self.core = Holder(HolderId(node, vault_id, 0), timing, now())
        self.gate = VaultGate(self, log)
        self.caught_up = False
        """The recovery of the vault has ended, and it follows the cluster."""
        self.incarnation = 0
        self.why = "it has not joined the cluster yet"
        """Why it does not serve, as text."""
        self.prefixes: Prefixes = ()
        """The strict prefixes when a region was last staged, or at the activation. While this node serves, no strict
        prefix is missing."""
        self.welcomed = False
        """The leader has answered the Hello of this connection."""
        self.listening = False
        """Its recovery listeners are running."""
        self.removed = False
        """The node was removed from the cluster: it never serves again."""
        self._send: Send | None = None
        self._changed: dict[asyncio.Future[None], None] = {}
        self._notified_lv = 0
        self._join_at = 0.0
        self._stages: deque[StageMessage] = deque()
        self._marking: tuple[Mark, list[int]] | None = None
        self.verdicts: dict[str, int] = {}
        self.fenced_s = 0.0
        self._counted_to = now()

    @property
    def serves(self) -> bool:
        return self.core.serves(self._now())

    # Its life

    def set_incarnation(self, incarnation: int) -> None:
        """Set the incarnation of this node in the topology; 0: it is not there. A new incarnation begins fenced. A
        removed node stays as it is."""
        if self.removed:
            return
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self._begin_anew("it is not in the topology" if not incarnation else "it has just joined")
            if self.vault.page is not None:
                self.vault.page.identify(incarnation)

    def recovering(self, begins: bool) -> None:
        """True: the vault begins to recover, so the node is fenced first. False: the vault is complete again."""
        self.caught_up = not begins
        if begins:
            self._unmark("its vault is recovering")
        else:
            self.settle()

    def _unmark(self, why: str) -> None:
        """Fence the node: later changes do not update the pending keys of its vault until it joins again."""
        now = self._now()
        self._refuse(why)
        self._stages.clear()
        self._marking = None
        promise = self.core.unmarked(now)
        if self.core.state is HolderPhase.RECOVERING:
            self.core.recovery_failed(now, why)
        self._open_gate()
        self._send_if_any(promise)

    def _begin_anew(self, why: str) -> None:
        """Begin with a new state machine, for which earlier grants are void. The page is updated first: no reader may
        continue by the old lease."""
        self._refuse(why)
        send, now = self._send, self._now()
        self.core = Holder(
            HolderId(self._node, self._vault_id, self.incarnation), self._timing, now, term=self.core.term
        )
        self._stages.clear()
        self._marking = None
        self._open_gate()
        if send is not None:
            send(self._hello(now))

    def stop(self, why: str = "it is stopping") -> None:
        """Stop serving permanently, and send the promise, so that no write waits for this node."""
        self._refuse(why)
        promise = self.core.stop(self._now())
        self._open_gate()
        if promise is not None and self._send is not None:
            self._send(promise)

    def remove(self) -> None:
        """Permanently: the node was removed from the cluster. Readers get this reason from the page."""
        self.removed = True
        self.stop("it was removed from the cluster")
        if self.vault.page is not None:
            self.vault.page.removed()
        self._notify_readers()

    def _refuse(self, why: str, state: FenceState = FenceState.FENCED) -> None:
        if self.why != why:
            log.log(logging.WARNING if self.why == "" else logging.DEBUG, "fenced: node=%s reason=%s", self._node, why)
        self.why = why
        page = self.vault.page
        if page is not None and page.fence.state is not state:
            page.refuse(state)
        self._notify_readers()

    def _open_gate(self) -> None:
        self.gate.wake()

    # The connection to the leader

    @property
    def has_history(self) -> bool:
        """Whether its vault belongs to a history. Before that, it requests nothing: the responses, RR above all, might
        belong to a history that is lost by the time the vault is claimed, and would count in the next one (R7)."""
        return self.vault.lineage is not None

    def connected(self, send: Send) -> None:
        self._send = send
        self.welcomed = False
        self._stages.clear()
        self._marking = None
        send(self._hello(self._now()))

    def _hello(self, now: float) -> Hello:
        lineage = self.vault.lineage
        return self.core.hello(now, self.vault.revision, UNKNOWN if lineage is None else lineage.generation)

    def disconnected(self) -> None:
        """A lease remains valid without a connection, until it expires."""
        self._send = None
        self._stages.clear()
        self._marking = None

    def deliver(self, message: FromLeader) -> None:
        now = self._now()
        if isinstance(message, StageMessage):
            self._stages.append(message)
            self._take_stages()
        elif isinstance(message, GrantMessage):
            verdict = self.core.on_grant(message, now)
            self.verdicts[verdict.name.lower()] = self.verdicts.get(verdict.name.lower(), 0) + 1
            if verdict not in (GrantVerdict.ACCEPTED, GrantVerdict.KEPT):
                log.debug("grant not accepted: node=%s verdict=%s", self._node, verdict.name)
        elif isinstance(message, Release):
            self.core.on_release(message, now)
        elif isinstance(message, WelcomeMessage):
            self._send_if_any(self.core.on_welcome(message, now))
            self.welcomed = True
        elif isinstance(message, Behind):
            self._join_at = now + BEHIND_S
            promise = self.core.on_behind(message, now)
            if promise is not None:
                self._refuse("its vault is too far behind")
                self._open_gate()
            self._send_if_any(promise)
        self._publish_release()
        self.settle()

    def _send_if_any(self, message: FromHolder | None) -> None:
        if message is not None and self._send is not None:
            self._send(message)

    def _publish_release(self) -> None:
        released = self.core.released
        if released > self.vault.staging.released:
            self.vault.staging.release(released)
            self._on_released(released)
            self._open_gate()
            self._notify_readers()

    def _notify_readers(self) -> None:
        waiting, self._changed = self._changed, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def changed(self, timeout_s: float) -> None:
        """Wait until RR or LV has changed or this node is fenced, or for that long."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed[future] = None
        try:
            await asyncio.wait({future}, timeout=timeout_s)
        finally:
            self._changed.pop(future, None)

    # Stages

    def _take_stages(self) -> None:
        """In order, one at a time: each is acknowledged before the next one is handled."""
        while self._stages and self._marking is None and not self.vault.staging.leaping:
            self._take(self._stages.popleft())
        if self._stages and self.vault.staging.leaping:
            self.vault.staging.after_leap(self._after_leap)

    def _after_leap(self) -> None:
        self._take_stages()
        self.settle()

    def _take(self, stage: StageMessage) -> None:
        now = self._now()
        found = self.core.on_stage(stage, now)
        if found is NotMarked.GAP:
            self._stages.clear()
            self._send_if_any(self._hello(now))
        elif isinstance(found, Mark):
            self._mark(found)
        elif isinstance(found, StagedMessage):
            self._send_if_any(found)

    def _mark(self, mark: Mark) -> None:
        try:
            regions = self.vault.staging.stage(mark.rows, anew=mark.anew)
        except Exception:
            self.core.mark_failed(self._now())
            raise
        changes = sorted(revision for revision, _, _ in regions)
        self._marking = (mark, changes)
        if changes:
            self.prefixes = self.vault.staging.effective_regions.strict_prefixes
        self._marked_if_whole()

    def _marked_if_whole(self) -> None:
        """A prefix that becomes strict was written without stages so far: the vault must have all those writes first.

        Changes before that one are acknowledged meanwhile: otherwise strict changes before it could not be released,
        the gate would keep them out, and the vault would never get that far.
        """
        if self._marking is None:
            return
        mark, changes = self._marking
        while changes and self.vault.revision >= changes[0] - 1:
            changes.pop(0)
        if not changes:
            self._marking = None
            self._send_if_any(self.core.marked(mark, self._now()))
        elif changes[0] - 1 > self.core.staged:
            self._send_if_any(self.core.marked(replace(mark, upto=changes[0] - 1), self._now()))

    # What is due

    def settle(self) -> None:
        """Execute every possible or due step. Called after every event that may have enabled one."""
        now = self._now()
        self._count(now)
        if self._notified_lv != self.vault.revision:
            self._notified_lv = self.vault.revision
            self._notify_readers()
        self.core.tick(now)
        if self.core.state is not HolderPhase.ACTIVE and self._page_serves():
            self._refuse("its lease has run out")
            self._open_gate()
            self._send_if_any(self.core.promise(now))
        if self._marking is not None:
            self._marked_if_whole()
            self._take_stages()
        if self.core.state is HolderPhase.ACTIVE:
            self._serve()
        elif self.core.state is HolderPhase.RECOVERING:
            self._activate(now)
        if self._wants_join():
            self._send_if_any(self.core.join(now, self.vault.revision))

    def next_check_s(self, tick_s: float) -> float:
        """How long to wait before the next check, unless an event comes first. While the node serves, every event is
        notified; otherwise some are not, so it checks at each tick."""
        now = self._now()
        if not self.core.serves(now) or self._marking is not None:
            return tick_s
        due = min(self.core.deadline, self.core.next_renewal() if self._send is not None else self.core.deadline)
        return min(max(due - now, 0.001), CHECK_S_MAX)

    def _page_serves(self) -> bool:
        """Whatever has fenced the state machine, the page must be FENCED before anything enters the vault."""
        page = self.vault.page
        return page is not None and page.fence.state is FenceState.ACTIVE

    def _wants_join(self) -> bool:
        if self._now() < self._join_at:
            return False
        return self.caught_up and self.incarnation > 0 and self._send is not None and self.core.wants_join

    def _activate(self, now: float) -> None:
        """A batch that is entering the vault was admitted while the node did not serve: it must be applied first."""
        if self.listening or not self.caught_up or self.vault.staging.leaping or self.gate.busy:
            return
        if self.core.activate(now, self.vault.revision) is None:
            log.info(
                "serving fenced reads: node=%s term=%d released=%d", self._node, self.core.term, self.core.released
            )
            self.why = ""
            self.prefixes = self.vault.staging.effective_regions.strict_prefixes
            self._serve()

    def _serve(self) -> None:
        page, deadline_ns = self.vault.page, int(self.core.deadline * 1e9)
        if page is not None:
            fence = page.fence
            if fence.state is not FenceState.ACTIVE or fence.deadline_ns != deadline_ns or fence.term != self.core.term:
                page.serve(deadline_ns, self.core.term)

    def renew_if_due(self) -> None:
        now = self._now()
        if self._send is not None and now >= self.core.next_renewal():
            self._send(self.core.renew(now))
            self.settle()

    # Recovery listeners

    def wants_recovery(self) -> bool:
        return self.caught_up and self.incarnation > 0 and not self.listening and self.core.wants_recovery(self._now())

    def begin_recovery(self) -> Holder:
        """The state machine to which the recovery belongs: a new one has its own."""
        self.core.begin_recovery(self._now())
        self.listening = True
        self._refuse("its recovery listeners are at work", FenceState.RECOVERING)
        return self.core

    def recovered(self, core: Holder) -> None:
        self.listening = False
        if core is self.core:
            core.recovered(self._now())
            self.why = "it waits for its lease"
        self.settle()

    def recovery_failed(self, core: Holder, why: str) -> None:
        self.listening = False
        if core is self.core:
            again = core.recovery_failed(self._now(), why)
            self._refuse(f"a recovery listener failed: {why}")
            log.warning(
                "recovery listener failed, the node stays fenced: node=%s retry_in_s=%.1f reason=%s",
                self._node,
                again - self._now(),
                why,
            )

    # What to show

    def _count(self, now: float) -> None:
        if not self.core.serves(now):
            self.fenced_s += now - self._counted_to
        self._counted_to = now
