"""The public interface of a Raft group: propose, read barrier, membership, leadership, status.

Group commit: one turn of the event loop is one batch and one log entry. The next batch collects while the journal is
synced; messages that depend on the sync leave after it. A write costs about one fsync and one round trip.

An exception of the state machine or the journal stops the node (`failed`): untrusted state is not served.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from palisade.base.snapshots import SnapshotMeta
from palisade.raftgroup.admission import MemberAdmission, own_introduction
from palisade.raftgroup.errors import MemberRemoved, MembershipRefused, NodeFailed, RaftError, Unavailable
from palisade.raftgroup.forwarding import Forwarding
from palisade.raftgroup.founding import Introductions
from palisade.raftgroup.group_config import NO_EVENTS, GroupConfig, GroupEvents
from palisade.raftgroup.journal_identity import keep_membership, open_storage, realigned
from palisade.raftgroup.leader_rpc import LeaderCalls
from palisade.raftgroup.leadership import LeadershipEvents
from palisade.raftgroup.log_retention import compaction_target
from palisade.raftgroup.membership import Member, MemberIdentity, Membership
from palisade.raftgroup.membership_changes import Administration
from palisade.raftgroup.messages import MessageKind, is_well_formed
from palisade.raftgroup.ports import Clock, Journal, Peers, Random, StateMachine
from palisade.raftgroup.proposals import Applied, AwaitedProposal, Proposal, Proposals
from palisade.raftgroup.read_barrier import ReadBarrier
from palisade.raftgroup.removal import FAREWELL_S, Removal
from palisade.raftgroup.replica import Replica
from palisade.raftgroup.role import RaftRole
from palisade.raftgroup.snapshots import Snapshots
from palisade.raftgroup.status import GroupStatus, group_status

log = logging.getLogger(__name__)

_TICK_S = 0.05
_HOUSEKEEPING_S = 0.2


class Group:
    """One member. `start` it before use; it runs until `close`, or until `failed` is set."""

    def __init__(
        self,
        config: GroupConfig,
        *,
        journal: Journal,
        machine: StateMachine,
        peers: Peers,
        clock: Clock,
        random: Random,
        events: GroupEvents = NO_EVENTS,
    ) -> None:
        self._config = config
        self._journal = journal
        self._machine = machine
        self._peers = peers
        self._clock = clock
        stored = open_storage(journal, config.cluster, config.member, random)
        self.incarnation = stored.incarnation
        own, founding = own_introduction(config, stored)
        membership = realigned(journal, machine.applied, stored.membership)
        if membership is None:
            membership = founding.provisional() if founding else Membership((), generation=stored.generation)
        self._replica = Replica(
            MemberIdentity(config.member, stored.incarnation),
            membership,
            journal=journal,
            machine=machine,
            clock=clock,
            random=random,
            timing=config.timing,
            send=peers.send,
        )
        self._snapshots = Snapshots(
            self._replica, machine=machine, journal=journal, clock=clock, send=peers.send, owner=self
        )
        self._admission = MemberAdmission(
            Introductions(own, founding), self._replica, journal=journal, peers=peers, wake=self._wake, fail=self.fail
        )
        self._proposals = Proposals()
        self._forwarding = Forwarding(self._proposals, clock, peers.send, random)
        self._calls = LeaderCalls(peers.send, random)
        self._barrier = ReadBarrier(self._replica, clock, self._calls, self._wake)
        self._administration = Administration(
            config.member,
            self._replica,
            journal=journal,
            peers=peers,
            calls=self._calls,
            turn=self._turn,
            read_index=self._read_index,
            handover_timeout_s=2 * config.timing.election_timeout_max_s,
        )
        self._turn_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._syncing, self._sync_began, self._stopped = False, 0.0, False
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._last_role: tuple[RaftRole, int, str | None] | None = None
        self.failed: asyncio.Future[None] | None = None
        self._events = events
        self._leadership = LeadershipEvents(self._replica, events.led)
        self.until_leads = self._leadership.until_leads
        self.removal = Removal(config.cluster, self._replica, self._end_removed, founds=bool(config.founders))

    # Lifecycle.

    async def start(self) -> None:
        """Listen, connect, take part. Raises the error of the transport if the port is not available."""
        self._loop = asyncio.get_running_loop()
        self.failed = self._loop.create_future()
        await self._journal.sync()
        self._admission.found()
        self._admission.dial(self._clock.now())
        await self._peers.start(self)
        self.spawn(self._housekeep())
        self._wake()

    async def close(self) -> None:
        """Stop taking part. A leader first hands over if a follower is ready."""
        if self._replica.leads and self._replica.membership.voters - {self._config.member}:
            try:
                await asyncio.wait_for(self.transfer(None), self._config.timing.election_timeout_min_s)
            except (RaftError, TimeoutError):
                log.info("stopping without a ready successor: node=%s", self._config.member)
        self._stop(Unavailable("this node is stopping; ask another one"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._snapshots.close()
        await self._peers.close()

    def _stop(self, error: RaftError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._stopped = True
        self._proposals.fail(lambda: error)
        self._barrier.fail(error)

    def fail(self, error: Exception) -> None:
        """Untrusted state is no longer served."""
        if self.failed is None or self.failed.done():
            return
        failure = error if isinstance(error, NodeFailed) else NodeFailed(f"this node stopped itself: {error!r}")
        if failure is not error:
            log.error("the node stops", exc_info=error)
            failure.__cause__ = error
        self.failed.set_exception(failure)
        self._stop(failure)
        self.spawn(self._peers.close())

    def _end_removed(self, error: MemberRemoved) -> None:
        """New requests are refused at once. The node ends a moment later, so that answers under way leave."""
        log.warning("%s", error)
        self._events.removed()
        self._barrier.fail(error)
        self._loop.call_later(FAREWELL_S, self.fail, error)

    def spawn(self, coroutine: Any) -> None:
        """A task that ends with the group at the latest."""
        task = self._loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    # Proposals.

    def submit(self, proposal: Proposal) -> None:
        """Propose its commands, in this order and with one outcome. Raises if nothing was begun."""
        self.check_alive()
        self._proposals.add(proposal, self._clock.now())
        self._wake()

    async def propose(self, command: bytes, *, timeout_s: float = 5.0) -> Applied:
        """Replicate a command, from any member. Raises Unavailable (nothing was done) or OutcomeUnknown."""
        future: asyncio.Future[Applied] = self._loop.create_future()
        self.submit(AwaitedProposal([command], future, timeout_s))
        return await future

    # Reads.

    def try_read_barrier(self) -> bool:
        """Whether a read of the local state is linearizable now, without waiting."""
        return self.removal.error is None and self._barrier.passes()

    async def read_barrier(self, *, timeout_s: float = 5.0) -> int:
        """Wait until a read of the local state is linearizable; returns a lower bound of its index.

        Raises Unavailable if no majority confirms a leader in time.
        """
        self.check_alive()
        return await self._barrier.wait(timeout_s)

    async def _read_index(self) -> int:
        """For a follower that reads its own state: it receives the commit index before this answer."""
        index = await self.read_barrier()
        self._replica.replication.send_commit_now()
        self._turn()
        return index

    # Membership and leadership, from any member.

    async def add(self, member: Member) -> None:
        """Add a learner (or the new storage of a known member); with `becomes_voter` the leader promotes it."""
        await self._at_leader("add", [member.to_wire()])

    async def promote(self, member_id: str) -> None:
        """Make a voter of a learner that has caught up."""
        await self._at_leader("promote", [member_id])

    async def remove(self, member_id: str) -> None:
        """Remove a member. If it is the leader, it first hands over."""
        await self._at_leader("remove", [member_id])

    async def transfer(self, target: str | None) -> str:
        """Hand leadership to `target`, or to the most advanced follower; waits until it leads, and returns its id."""
        leader: str = await self._at_leader("transfer", [target])
        return leader

    async def _at_leader(self, name: str, arguments: list[Any]) -> Any:
        self.check_alive()
        return await self._administration.at_leader(name, arguments)

    # State.

    @property
    def leader(self) -> str | None:
        """The leader, as far as this member knows."""
        return self._replica.leader

    @property
    def leads(self) -> bool:
        return self._replica.leads

    @property
    def term(self) -> int:
        return self._replica.engine.term

    @property
    def role(self) -> RaftRole:
        return self._replica.role

    @property
    def members(self) -> Membership:
        return self._replica.membership

    @property
    def generation(self) -> int:
        """The newest one of the log that this node has or is copying, even if not copied so far; 0 without a log."""
        return self._admission.generation

    def status(self) -> GroupStatus:
        return group_status(self._replica, self._journal, self._admission, self._peers, self._snapshots.sends_to)

    def check_alive(self) -> None:
        """Raises Unavailable before the start, NodeFailed once it has failed or was removed."""
        if self.removal.error is not None:
            raise self.removal.error
        if self.failed is None:
            raise Unavailable("this node has not started yet; try again")
        if self.failed.done():
            raise NodeFailed(f"this node has stopped: {self.failed.exception()}")

    # The turn.

    def _wake(self) -> None:
        if not self._turn_due and not self._stopped:
            self._turn_due = True
            self._loop.call_soon(self._scheduled_turn)

    def _scheduled_turn(self) -> None:
        self._turn_due = False
        self._turn()

    def _turn(self) -> None:
        """One round: apply committed entries, send due messages, propose new commands."""
        if self.failed is None or self._stopped:
            return
        try:
            self._replica.tick()
            self._propose_batch()
            self._after_tick()
        except Exception as error:
            self.fail(error)
            return
        if not self._syncing and (self._journal.dirty or self._replica.waits_for_sync):
            self._syncing = True
            self._loop.call_soon(self._sync)
        if self._replica.wants_tick():
            self._wake()
        self._arm()

    def _propose_batch(self) -> None:
        displaced = self._replica.unapplied.take_displaced()
        if displaced:
            self._proposals.put_back(displaced)
        if not self._proposals:
            return
        if self._replica.leads:
            if not (self._syncing or self._administration.handing_over) and (batch := self._proposals.take()):
                self._replica.propose(batch)
        elif self.leader is not None and self.leader in self._peers.connected():
            self._forwarding.forward(self.leader, self._proposals.take())

    def _after_tick(self) -> None:
        self._leadership.turned()
        self.removal.check_log()
        self._forwarding.send_answers()
        self._barrier.turned()
        self._administration.turned()
        state = (self.role, self.term, self.leader)
        if state != self._last_role:
            self._role_changed(state)

    def _role_changed(self, state: tuple[RaftRole, int, str | None]) -> None:
        role, term, leader = state[0].value, state[1], state[2] or "unknown"
        log.info("role changed: node=%s role=%s term=%d leader=%s", self._config.member, role, term, leader)
        self._last_role = state
        self._calls.led_by(state[2])
        self._admission.dial(self._clock.now())
        if self._proposals:
            self._wake()

    def _sync(self) -> None:
        """Not within the turn: its messages and answers leave before the loop waits for the disk."""
        if not self._stopped:
            self._sync_began = self._clock.now()
            self._journal.begin_sync(self._synced)

    def _synced(self, failure: Exception | None) -> None:
        """Send what the sync made true; let the next batch in."""
        self._syncing = False
        if self._stopped:
            return
        try:
            if failure is not None:
                raise failure
            self._events.synced(self._clock.now() - self._sync_began)
            self._replica.synced()
        except Exception as error:
            self.fail(error)
        self._turn()

    def _arm(self) -> None:
        """Schedule the next turn that is due by time alone."""
        left = max(self._replica.replication.due - self._clock.now(), 0.001)
        delay = min(_TICK_S, left) if self._replica.engine.leads else _TICK_S
        now = self._loop.time()
        if now < self._timer_due <= now + delay:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = now + delay
        self._timer = self._loop.call_at(self._timer_due, self._timed_turn)

    def _timed_turn(self) -> None:
        """A loop may call slightly early, so the time does not show whether the timer still runs."""
        self._timer_due = 0.0
        self._proposals.expire(self._clock.now())
        self._turn()

    async def _housekeep(self) -> None:
        """Founding, promotion of caught-up learners, compaction of the log."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            try:
                self._admission.dial(self._clock.now())
                self._administration.promote_learners()
                self._snapshots.tick()
                refusals, connected = self._admission.refusals, self._peers.connected()
                self.removal.check_refusals(refusals, connected, self._clock.now())
                await self._compact_log()
            except MembershipRefused:
                continue
            except Exception as error:
                self.fail(error)
                return

    async def _compact_log(self) -> None:
        target = compaction_target(
            self._config.retention,
            first=self._journal.first.index,
            last=self._journal.last.index,
            durable=self._machine.durable[0],
            needed=self._snapshots.oldest_index(),
        )
        if target is not None:
            keep_membership(self._journal, self._replica.compact_log(target))
            self._wake()

    def installed(self, meta: SnapshotMeta, membership: Membership) -> None:
        """A snapshot has become the state of the machine."""
        self._replica.installed_snapshot(meta.index, meta.term, membership)
        keep_membership(self._journal, self._replica.membership_at(meta.index))
        self._barrier.turned()
        self._wake()

    # MessageReceiver: called by the transport.

    def greeting(self) -> dict[str, Any]:
        return self._admission.greeting()

    def greet(self, greeting: dict[str, Any]) -> str | None:
        return self._admission.judge(greeting)

    def on_connected(self, member: str, greeting: dict[str, Any]) -> None:
        for part in (self._replica, self._snapshots, self._admission):
            part.connected(member)
        self._wake()

    def on_disconnected(self, member: str) -> None:
        self._replica.replication.forget(member)
        self._snapshots.disconnected(member)
        for part in (self._calls, self._forwarding, self._admission):
            part.lost(member)

    def on_refused(self, member: str, reason: str) -> None:
        self._admission.refused(member, reason)

    def on_message(self, member: str, kind: int, body: Any) -> None:
        if not is_well_formed(kind, body):
            log.warning("malformed message dropped: kind=%d member=%s", kind, member)
            return
        try:
            self._handle(member, kind, body)
        except Exception as error:
            self.fail(error)
        self._wake()

    def _handle(self, member: str, kind: int, body: Any) -> None:
        if not self._admission.accepts(member, kind):
            return
        if kind == MessageKind.FORWARD:
            self._forwarding.take(member, body, leads=self._replica.engine.leads)
        elif kind == MessageKind.FORWARD_REPLY:
            self._forwarding.answered(member, body)
        elif kind == MessageKind.REQUEST:
            number, name, arguments = body
            self.spawn(self._administration.answer(member, number, name, arguments))
        elif kind == MessageKind.RESPONSE:
            self._calls.answered(member, *body)
        elif kind == MessageKind.SNAPSHOT:
            self._snapshots.receive(member, body)
        elif kind == MessageKind.FOUNDING:
            self._admission.reported(member, body[0])
        else:
            self._replica.receive(member, kind, body)
