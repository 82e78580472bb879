"""Counts what a run reaches: results of decisions, changes of state, applied entries. Checks nothing.

Only during a run, and only where it happens: no tracing, no searching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import palisade.fencing.release
import palisade.metastore.txn
import palisade.raftgroup.append_replies
import palisade.raftgroup.group
import palisade.raftgroup.replica
import palisade.raftgroup.snapshot_receiver
import palisade.recovery.follower
import palisade.recovery.recovery
import palisade.segments.realtime_handoff
import palisade.topology.registrar
import palisade.vault.reader
from palisade.api.http.fast_path import HttpConnection as HttpConnection
from palisade.api.stream.connection import StreamConnection
from palisade.fencing.holder_state import Holder
from palisade.fencing.release import Releases
from palisade.metastore.command_codec import decode_command, unpack
from palisade.metastore.put_series import is_series
from palisade.metastore.requests import Put
from palisade.metastore.state_machine import MetaStore
from palisade.node.fencing.lease_endpoint import LeaseEndpoint
from palisade.raftgroup.group import Group
from palisade.raftgroup.membership import Membership
from palisade.raftgroup.replica import Replica
from palisade.raftgroup.snapshot_sender import SnapshotSender
from palisade.recovery.recovery import Recovery
from palisade.recovery.report import RecoveryReport
from palisade.recovery.vault_component import ComponentPort
from palisade.segments.broker import SegmentBroker
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.topology.member import TopologyMember
from palisade.topology.swim.roster import Roster
from palisade.vault.errors import ReadRefused
from palisade.vault.incoming_difference import Incoming
from palisade.vault.snapshot_reads import ReadOrigin
from palisade.vault.vault import PLAN_DUE
from tests.sim.coverage import groups
from tests.sim.coverage.data_nodes import interrupted, phases
from tests.sim.coverage.naming import name_of
from tests.sim.node import Host
from tests.sim.seen import PROBER, Ok, Refused, Unknown, WatchAsked, WatchEnded
from tests.sim.world import Checker, World
from tests.support.raft_network import SimPeers

ANSWERS: tuple[tuple[str, Any, str], ...] = (
    ("holder is offered a grant", Holder, "on_grant"),
    ("holder is sent a stage", Holder, "on_stage"),
    ("leader is asked for a lease", Releases, "renew"),
    ("leader hears hello", Releases, "hello"),
    ("append is received", palisade.raftgroup.replica, "screen_append"),
    ("append is answered", palisade.raftgroup.append_replies, "screen_reply"),
    ("recovery decision", palisade.recovery.follower, "decide"),
    ("recovery next", palisade.recovery.recovery, "next_step"),
    ("realtime step", palisade.segments.realtime_handoff, "next_step"),
    ("topology verdict", palisade.topology.registrar, "judge_join"),
    ("topology verdict", palisade.topology.registrar, "judge_recovered"),
    ("topology verdict", palisade.topology.registrar, "judge_leave"),
)
"""(group, where, what): each result is a row."""


class Coverage(Checker):
    name = "coverage"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._roles: dict[str, tuple[int, Any]] = {}
        self._seen: dict[str, tuple[Any, ...]] = {}
        """The inputs of a role: it is computed again when they have changed."""
        self._applied = 0

    @contextmanager
    def looking(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for group, owner, name in ANSWERS:
                patch.setattr(owner, name, self._answered(group, getattr(owner, name)))
            self._watch_states(patch)
            self._watch_fences(patch)
            self._watch_raft(patch)
            self._watch_pressure(patch)
            self._watch_data_nodes(patch)
            self._watch_rare_paths(patch)
            patch.setattr(palisade.metastore.txn, "holds", self._compared(palisade.metastore.txn.holds))
            patch.setattr(Recovery, "_accept", self._before(Recovery._accept, self._decided))
            patch.setattr(palisade.vault.reader, "read_one", self._read(palisade.vault.reader.read_one))
            self._overhear()
            yield

    def reached(self, group: str, name: str) -> None:
        self.world.count(groups.row(group, name))

    def _answered(self, group: str, decision: Callable[..., Any]) -> Callable[..., Any]:
        def answered(*arguments: Any, **options: Any) -> Any:
            answer = decision(*arguments, **options)
            self.reached(group, name_of(answer))
            return answer

        return answered

    def _before(self, function: Callable[..., Any], notify: Callable[..., None]) -> Callable[..., Any]:
        """`notify` is called with the arguments of the function, before it."""

        def observed(*arguments: Any, **options: Any) -> Any:
            notify(*arguments, **options)
            return function(*arguments, **options)

        return observed

    # States

    def _watch_states(self, patch: pytest.MonkeyPatch) -> None:
        self._watch_attribute(patch, Holder, "_state", "holder", "holder state")
        self._watch_attribute(patch, TopologyMember, "life", "life", "life", lambda life: life.phase)
        patch.setattr(Roster, "put", self._before(Roster.put, self._received))

    def _watch_attribute(
        self,
        patch: pytest.MonkeyPatch,
        owner: type,
        attribute: str,
        name: str,
        group: str,
        state_of: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        def assign(of: Any, field: str, value: Any) -> None:
            if field == attribute:
                before = getattr(of, attribute, None)
                self._changed(group, f"{name} change", None if before is None else state_of(before), state_of(value))
            object.__setattr__(of, field, value)

        patch.setattr(owner, "__setattr__", assign)

    def _changed(self, group: str, change: str, before: Any, now: Any) -> None:
        """The first state has no predecessor."""
        if before is now:
            return
        self.reached(group, name_of(now))
        if before is not None:
            self.reached(change, groups.change(before, now))

    def _received(self, roster: Roster, record: Any) -> None:
        before = roster.get(record.name)
        self._changed("swim state", "swim change", before.state if before is not None else None, record.state)

    def turned(self, host: Host) -> None:
        group = host.group
        if group is None:
            return
        seen = host.starts, group._replica.engine.role, group.members
        if self._seen.get(host.id) == seen or host.failed:
            return
        self._seen[host.id] = seen
        role = group.role
        start, before = self._roles.get(host.id, (0, None))
        if role is not before or start != host.starts:
            self._roles[host.id] = host.starts, role
            self._changed("raft role", "raft role change", before if start == host.starts else None, role)

    # Fencing

    def _watch_fences(self, patch: pytest.MonkeyPatch) -> None:
        activate, finish = Holder.activate, Releases._finish
        judge, verdict = palisade.fencing.release.judge, Releases.verdict

        def activated(holder: Holder, now: float, lv: int) -> Any:
            lacks = activate(holder, now, lv)
            if lacks is not None:
                self.reached("holder is not activated", name_of(lacks))
            return lacks

        def finished(releases: Releases, batch: Any, now: float) -> None:
            finish(releases, batch, now)
            self.reached("released", "by fence" if releases._finished[-1].by_fence else "acknowledged")

        def judged(*arguments: Any) -> Any:
            one = judge(*arguments)
            self.reached("verdict on a holder", name_of(one.judgement))
            return one

        def decided(*arguments: Any) -> Any:
            found = verdict(*arguments)
            if found is not None:
                self.reached("verdict on a revision", name_of(found.outcome))
            return found

        patch.setattr(Holder, "activate", activated)
        patch.setattr(Releases, "_finish", finished)
        patch.setattr(palisade.fencing.release, "judge", judged)
        patch.setattr(Releases, "verdict", decided)

    def _read(self, read_one: Callable[..., Any]) -> Callable[..., Any]:
        def read(reading: Any, key: bytes, *rest: Any) -> Any:
            rule = reading.covering(key, key + b"\0")
            try:
                shown = yield from read_one(reading, key, *rest)
            except ReadRefused as error:
                self._read_ended(rule, name_of(type(error)))
                raise
            self._read_ended(None if shown.origin is ReadOrigin.VAULT else rule, name_of(shown.origin))
            return shown

        return read

    def _read_ended(self, rule: Any, how: str) -> None:
        self.reached("fenced read", how)
        if rule is not None:
            self.reached("policy of a region", name_of(rule.policy))

    # Transactions

    def _compared(self, holds: Callable[..., bool]) -> Callable[..., bool]:
        def compared(view: Any, compare: Any) -> bool:
            held = holds(view, compare)
            self.reached("compare", groups.compared(compare.target, compare.result, held=held))
            self.reached("compare is of", "a range" if compare.range_end else "a key")
            return held

        return compared

    # The group

    def _watch_raft(self, patch: pytest.MonkeyPatch) -> None:
        refuse = palisade.raftgroup.snapshot_receiver.refuse
        patch.setattr(SnapshotSender, "_end", self._before(SnapshotSender._end, self._sent))
        patch.setattr(palisade.raftgroup.snapshot_receiver, "refuse", self._before(refuse, self._refused))
        for name in groups.memberships():
            patch.setattr(Membership, name, self._returned("membership", name, getattr(Membership, name)))

    def _sent(self, _: SnapshotSender, outcome: Any, *__: Any) -> None:
        self.reached("snapshot is sent", name_of(outcome))

    def _refused(self, _: str, why: Any, *__: Any) -> None:
        self.reached("snapshot is refused", name_of(why))

    def _returned(self, group: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Without having raised."""

        def returned(*arguments: Any) -> Any:
            result = function(*arguments)
            self.reached(group, name)
            return result

        return returned

    def _overhear(self) -> None:
        network, names = self.world.network, {int(kind): name_of(kind) for kind in groups.message_kinds()}
        network.overhear = self._before(
            network.overhear, lambda _, __, kind, ___: self.reached("raft message", names.get(kind, str(kind)))
        )

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        if index > self._applied:
            self._applied = index
            for command in commands:
                series = is_series(unpack(command))
                self.reached("command", name_of(Put) if series else name_of(decode_command(command)[0]))

    def _watch_pressure(self, patch: pytest.MonkeyPatch) -> None:
        counted = (
            (StreamConnection, "pause_writing"),
            (StreamConnection, "resume_writing"),
            (HttpConnection, "pause_writing"),
            (HttpConnection, "resume_writing"),
            (SimPeers, "_give_up"),
        )
        for (owner, method), name in zip(counted, groups.PRESSED[:-1], strict=True):
            reached = partial(self._pressed, name)
            patch.setattr(owner, method, self._before(getattr(owner, method), reached))
        given_up, opens = partial(self._pressed, groups.PRESSED[-1]), LeaseEndpoint.open

        def opened(endpoint: LeaseEndpoint, write: Any, unsent: Any, close: Any, abort: Any) -> Any:
            return opens(endpoint, write, unsent, close, self._before(abort, given_up))

        patch.setattr(LeaseEndpoint, "open", opened)

    def _watch_rare_paths(self, patch: pytest.MonkeyPatch) -> None:
        """Places of rules that few runs need. The first three count if the function changes what `look` finds."""

        def membership(group: Group, *_: Any) -> Any:
            return group._journal.get_meta("membership")

        watched = (
            (palisade.raftgroup.group, "realigned", lambda journal, *_: journal.first.index, groups.FINISHED_INSTALL),
            (Group, "installed", membership, groups.OTHER_MEMBERSHIP),
            (MetaStore, "reload", lambda store: dict(store._compactor._pins), groups.OTHER_PINS),
        )
        for owner, name, look, path in watched:
            patch.setattr(owner, name, self._when_changed(getattr(owner, name), look, path))
        finish, hand_over = Incoming.finish, Replica.hand_over
        patch.setattr(Incoming, "finish", self._before(finish, self._snapshot_ends))
        patch.setattr(Replica, "hand_over", self._before(hand_over, self._hands_over))

    def _when_changed(self, function: Callable[..., Any], look: Callable[..., Any], path: str) -> Callable[..., Any]:
        def observed(*arguments: Any) -> Any:
            before = look(*arguments)
            result = function(*arguments)
            if before is not None and look(*arguments) != before:
                self.reached("rare path", path)
            return result

        return observed

    def _snapshot_ends(self, incoming: Incoming, *_: Any) -> None:
        plan = incoming._vault.plan()
        if plan is not None and plan[0] != PLAN_DUE:
            self.reached("rare path", groups.IN_EVICTION)

    def _hands_over(self, replica: Replica, *_: Any) -> None:
        if replica._lease_until > replica._clock.now():
            self.reached("rare path", groups.WITHIN_LEASE)

    def _pressed(self, name: str, *_: Any) -> None:
        self.reached("back-pressure", name)

    # Data nodes

    def _watch_data_nodes(self, patch: pytest.MonkeyPatch) -> None:
        """What a lost lease interrupts, and how brokers get their views."""
        patch.setattr(LeasedAnnouncements, "_lost", self._before(LeasedAnnouncements._lost, self._lease_lost))
        started, differs = partial(self._synced, "at its start"), partial(self._synced, "by a difference")
        patch.setattr(SegmentBroker, "start", self._before(SegmentBroker.start, started))
        patch.setattr(ComponentPort, "difference", self._before(ComponentPort.difference, differs))

    def _synced(self, how: str, *_: Any) -> None:
        self.reached("broker is synced", how)

    def _lease_lost(self, own: LeasedAnnouncements) -> None:
        node = self.world.hosts[own.node].node
        if own.lease and node is not None:
            for each in interrupted(node.segments.local, own):
                self.reached("announcements lost", name_of(each))

    def killed(self, host: Host) -> None:
        for phase in phases(host.node.segments.local):
            self.reached("ingester killed", name_of(phase))

    # Clients

    def ended(self) -> None:
        """By any path: the history has them all. Probes, which run without faults, do not count."""
        for operation in self.world.history.operations():
            kind, outcome = type(operation.request), operation.outcome
            if operation.client.startswith(PROBER):
                continue
            if isinstance(outcome, Ok):
                for part in groups.parts_of(operation.request):
                    self.reached("part of a request", part)
            if outcome is None or (operation.is_read and isinstance(outcome, Unknown)):
                continue
            self.reached("request", f"{name_of(kind)} {name_of(type(outcome))}")
            if isinstance(outcome, Ok):
                self.reached("way of a request", name_of(operation.path))
            if isinstance(outcome, Refused):
                self.reached("refusal", name_of(outcome.why))
        for events in self.world.history.watches().values():
            if isinstance(events[0], WatchAsked) and events[0].client.startswith(PROBER):
                continue
            for event in events:
                self.reached("watch event", name_of(type(event)))
            if isinstance(events[-1], WatchEnded):
                self.reached("watch ends", name_of(events[-1].ending))

    # Recoveries

    def _decided(self, _: Recovery, decision: Any) -> None:
        self.reached("recovery decision", name_of(decision))

    def wired(self, host: Host) -> None:
        assert host.machine is not None
        home = host.machine.home
        home.on_report = self._before(home.on_report, self.recovered)

    def recovered(self, report: RecoveryReport) -> None:
        self.reached("recovery end", name_of(report.outcome))
        for phase, _ in report.phases:
            self.reached("recovery phase", name_of(phase))
