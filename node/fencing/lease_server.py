"""The leader's side of fencing: lease holders, stages for each of them, releases of changes. Synchronous but for
timers.

`fencing.release.Releases` and `fencing.session.HolderSession` decide. This module gives them the registry (system
records, so that every later leader knows it), the applied strict changes and the quorum lease of the group, and sends
their decisions to the sessions.

Order within a turn, on each connection: stages, then grants, then releases; waiters on this node come last. A stage is
encoded once for all holders that lack the same changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from palisade.base.metrics import Histogram
from palisade.fencing.messages import (
    UNKNOWN,
    Elsewhere,
    FencedMessage,
    GrantMessage,
    Hello,
    HolderId,
    JoinMessage,
    RefusedMessage,
    Release,
    Renew,
    Row,
    StagedMessage,
    StageMessage,
    WelcomeMessage,
)
from palisade.fencing.registry import HolderStanding
from palisade.fencing.release import NotGranted, Registration, Releases
from palisade.fencing.session import HolderSession
from palisade.fencing.timing import FenceTiming
from palisade.service.pending_write import ReleaseWaiters
from palisade.service.strict_changes import StrictBatch
from palisade.wire.fence_messages import FromHolder, FromLeader

log = logging.getLogger(__name__)

STAGE_ROWS_MAX = 20_000
STAGE_BYTES_MAX = 16 << 20
WAIT_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 2.0, 4.0)
LEASE_LOOK_S = 0.02
"""How often the quorum lease is checked, while holders wait for a grant."""
RENEW_AGE_S = 1.0
"""An older request for a lease is not answered any more: the next one is on its way."""
SOON = (NotGranted.NO_QUORUM_LEASE, NotGranted.NOT_REGISTERED, NotGranted.OTHER_TIMES)
"""Reasons for which a request waits a moment instead of being dropped."""


@dataclass(eq=False, slots=True)
class HolderConnection:
    """One holder, as the leader sees it. `send` sends a message; `close` closes the connection."""

    send: Callable[[FromLeader], None]
    close: Callable[[], None]
    session: HolderSession | None = None
    owed: tuple[Renew, float] | None = None
    renewed: bool = False
    """It has sent a Renew since the last turn, and gets the current revisions even if nothing strict has changed."""
    staged_upto: int = -1
    """The revision up to which it was staged."""

    @property
    def holder(self) -> HolderId | None:
        return self.session.holder if self.session is not None else None


def _unknown() -> int:
    return UNKNOWN


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Current state of the cluster, as this node knows it. `lease_holds`: whether the quorum lease of the group does.

    `leader_address`: of the stream of the leader, for holders that ask another node. `is_active`: whether a node, in
    this incarnation, is in the logical topology. `generation`: of the store of this node.
    """

    lease_holds: Callable[[], bool]
    leader_address: Callable[[], str | None]
    is_active: Callable[[str, int], bool]
    generation: Callable[[], int] = _unknown


class LeaseServer:
    """On every member. `released`: passes on the strict changes, and is advanced with RR. `on_failed`: an invariant is
    broken; the node must stop."""

    def __init__(
        self,
        released: ReleaseWaiters,
        timing: FenceTiming,
        now: Callable[[], float],
        cluster: ClusterView,
        *,
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._on_failed = on_failed
        self.timing = timing
        self._core = Releases(timing)
        self.log, self._on_released = released.log, released.release
        self._now = now
        self._lease_holds, self._leader_address = cluster.lease_holds, cluster.leader_address
        self._is_active, self._generation = cluster.is_active, cluster.generation
        self.connections: dict[HolderConnection, None] = {}
        self.wanted: dict[str, tuple[Hello, HolderStanding]] = {}
        """Holders that must be registered, or registered again, before they are granted anything."""
        self.not_granted: dict[str, int] = {}
        self.granted = 0
        self.waits = {"acked": Histogram(WAIT_BUCKETS_S), "fenced": Histogram(WAIT_BUCKETS_S)}
        """How long changes waited for their release, by whether all holders had acknowledged."""
        self._announced = -1
        self._turn_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        released.pass_on(self.committed)

    @property
    def core(self) -> Releases:
        """With everything that is applied. It receives eventual revisions here, when they matter, not with each entry:
        they wait for nothing."""
        core, latest = self._core, self.log.latest
        if core.leads and latest > core.lm:
            core.committed(latest, self._now(), None)
        return core

    # Leadership

    def begin_term(self, term: int, registered: Iterable[Registration]) -> None:
        """This node leads and has applied every entry of earlier terms."""
        self._announced = -1
        self.core.begin_term(term, self._now(), registered, self.log.latest)
        log.info("granting leases: term=%d", term)
        self._soon()

    def end_term(self) -> None:
        if not self.core.leads:
            return
        self.core.end_term()
        self.wanted.clear()
        self._disarm()
        elsewhere = Elsewhere(self._leader_address())
        for connection in list(self.connections):
            connection.session = None
            connection.send(elsewhere)
            connection.close()
        self.connections.clear()

    # Messages of holders

    def receive(self, connection: HolderConnection, message: FromHolder) -> None:
        """From one connection, in order. Raises ValueError for an invalid message."""
        if isinstance(message, Hello):
            self._on_hello(connection, message)
            return
        session = connection.session
        if session is None:
            return
        holder, now = session.holder, self._now()
        if isinstance(message, StagedMessage):
            self.core.staged(holder, message.upto, now)
            if not self.core.moves(now):
                return
        elif isinstance(message, Renew):
            connection.owed, connection.renewed = (message, now), True
        elif isinstance(message, FencedMessage):
            connection.owed = None
            self.core.fenced(holder, message, now)
        elif isinstance(message, JoinMessage):
            session.on_join(message)
            connection.staged_upto = -1
        self._soon()

    def _on_hello(self, connection: HolderConnection, hello: Hello) -> None:
        now = self._now()
        if not self.core.leads:
            connection.send(Elsewhere(self._leader_address()))
            connection.close()
            return
        if self._is_of_another_history(connection, hello.generation):
            return
        for other in list(self.connections):
            if other is not connection and other.holder is not None and other.holder.node == hello.holder.node:
                self._replace(other, hello.holder)
        connection.owed, connection.staged_upto = None, -1
        connection.session = HolderSession(hello)
        self.connections[connection] = None
        if hello.holder.incarnation:
            standing = self.core.hello(hello, now)
            if standing is HolderStanding.OLD_INCARNATION:
                connection.send(RefusedMessage(f"a later process of {hello.holder.node} has connected"))
                self.drop(connection)
                return
            if standing in (HolderStanding.NEW, HolderStanding.OTHER):
                self.wanted[hello.holder.node] = (hello, standing)
            else:
                self.wanted.pop(hello.holder.node, None)
        connection.send(WelcomeMessage(self.core.term, self.core.lm, self.core.rr))
        self._soon()

    def _is_of_another_history(self, connection: HolderConnection, its: int) -> bool:
        """A backup was restored, or a new cluster forced, and that vault holds the earlier history: its revisions mean
        nothing here, and a lease would let it serve changes that may never have happened (R7)."""
        own = self._generation()
        if own in (its, UNKNOWN):
            return False
        history = "no generation yet" if its == UNKNOWN else f"generation {its}"
        connection.send(
            RefusedMessage(
                f"its vault is of {history}, and this cluster of generation {own}: restart the node, with the release "
                "that the members run; if it refuses its vault then, put that aside (palisade vault reset)"
            )
        )
        self.drop(connection)
        return True

    def _replace(self, other: HolderConnection, holder: HolderId) -> None:
        """Drop the earlier connection of a node: the newer one counts."""
        if other.holder is not None and other.holder.incarnation <= holder.incarnation:
            self.drop(other)

    def drop(self, connection: HolderConnection) -> None:
        self.connections.pop(connection, None)
        connection.session = None
        connection.close()

    def lost(self, connection: HolderConnection) -> None:
        """The connection broke. That has no consequence: leases expire by time."""
        self.connections.pop(connection, None)
        connection.session = None

    # What is applied

    def committed(self, batch: StrictBatch) -> None:
        """Strict changes that this node has applied."""
        if self._core.leads:
            self._core.committed(batch.upto, self._now(), batch.strict)
            self._soon()

    # The turn

    def _soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._scheduled)

    def _scheduled(self) -> None:
        self._turn_due = False
        self.turn()

    def turn(self) -> None:
        """Stage, grant and release everything that is due. Waiters on this node come last: answering them takes a
        while, and other nodes wait for the messages sent before."""
        try:
            if self.core.leads:
                self._turn()
        except Exception as error:
            self._on_failed(error)

    def _turn(self) -> None:
        now = self._now()
        released = self.core.advance(now)
        self._stage_all()
        self._grant_all(now)
        released = self.core.advance(now) or released
        if self.core.rr is not None:
            self._release_all(self.core.strict_released)
        if released is not None:
            self._on_released(released)
        for each in self.core.take_released():
            self.waits["fenced" if each.by_fence else "acked"].observe(each.waited_s)
        self._arm(now)

    def _stage_all(self) -> None:
        """Holders that lack the same changes get the same rows: read once, and encoded once
        (`wire.fence_messages.FenceFrames`)."""
        rows: Callable[[int], tuple[Row, ...] | None] = cache(self._rows)
        core = self.core
        for connection in list(self.connections):
            session = connection.session
            if session is None or not session.holder.incarnation:
                continue
            if not connection.renewed and connection.staged_upto >= core.strict_latest:
                continue
            stage = session.next_stage(core.term, core.lm, core.rr, rows)
            if stage is None:
                continue
            connection.send(stage)
            if isinstance(stage, StageMessage):
                connection.staged_upto = stage.upto

    def _rows(self, after: int) -> tuple[Row, ...] | None:
        """The latest version of each key is enough: a holder serves staged values only after their release."""
        rows = self.log.since(after)
        if rows is None or len(rows) > STAGE_ROWS_MAX:
            return None
        size = sum([len(key) + len(body or b"") for _, key, body in rows])
        return tuple(rows) if size <= STAGE_BYTES_MAX else None

    def _grant_all(self, now: float) -> None:
        """Answer the requests for leases. A request may wait a moment: a new leader has its quorum lease after its
        first round, and a registration takes one as well."""
        for connection in list(self.connections):
            if connection.owed is None or connection.session is None:
                continue
            (renew, since), holder = connection.owed, connection.session.holder
            if now - since > RENEW_AGE_S:
                connection.owed = None
                continue
            if not self._is_active(holder.node, holder.incarnation):
                renew = replace(renew, asks=False)
            answer = self.core.renew(holder, renew, now, quorum_lease=self._lease_holds())
            if isinstance(answer, GrantMessage):
                connection.owed = None
                self.granted += 1
                connection.send(answer)
            else:
                self.not_granted[answer.name.lower()] = self.not_granted.get(answer.name.lower(), 0) + 1
                if answer not in SOON:
                    connection.owed = None

    def _release_all(self, released: int) -> None:
        """Send the latest released strict revision. RR itself also grows with eventual writes, which are not staged."""
        message = Release(self.core.term, released)
        is_newer, self._announced = released > self._announced, max(released, self._announced)
        for connection in list(self.connections):
            wanted, connection.renewed = is_newer or connection.renewed, False
            if wanted and connection.session is not None and connection.session.release_due(released):
                connection.send(message)

    def _arm(self, now: float) -> None:
        """Set the timer of the next turn. One that is too early is harmless: its turn sets the next one."""
        due = self.core.next_time(now)
        if any(connection.owed is not None for connection in self.connections):
            due = min(due, now + LEASE_LOOK_S) if due is not None else now + LEASE_LOOK_S
        if due is None or (self._timer is not None and self._due <= due):
            return
        self._disarm()
        self._due = due
        self._timer = asyncio.get_running_loop().call_later(max(due - now, 0.001), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.turn()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def registered(self, hello: Hello) -> None:
        """Its record was applied."""
        self.wanted.pop(hello.holder.node, None)
        self._soon()

    def unregistered(self, node: str) -> None:
        """Its record is gone. Its connection is dropped: a holder that has joined again meanwhile sends Hello again."""
        for connection in list(self.connections):
            if connection.holder is not None and connection.holder.node == node:
                self.drop(connection)
        self.turn()
