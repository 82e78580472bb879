"""Admits and dials members, and founds a new group: executes the decisions of `founding` and `peers_to_dial`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from palisade.raftgroup.errors import DataDirectoryError, MustJoin
from palisade.raftgroup.founding import Founding, Greeting, Introductions
from palisade.raftgroup.generations import (
    UNKNOWN,
    left_behind,
    may_work_together,
    new_storage,
    outlived,
    refusing_generation,
)
from palisade.raftgroup.group_config import GroupConfig
from palisade.raftgroup.journal_identity import StoredIdentity, keep_generation, keep_membership, keep_pins
from palisade.raftgroup.membership import FIRST_GENERATION, Membership
from palisade.raftgroup.messages import TO_TAKE_IN, MessageKind
from palisade.raftgroup.peers_to_dial import Contacts
from palisade.raftgroup.ports import Journal, Peers
from palisade.raftgroup.replica import Replica

log = logging.getLogger(__name__)

_NOT_DIALLED: tuple[int, dict[str, str]] = (0, {})


def own_introduction(config: GroupConfig, stored: StoredIdentity) -> tuple[Greeting, Founding | None]:
    """This node's greeting, and the state of founding the group if that is its task."""
    founds = stored.membership is None and bool(config.founders)
    own = Greeting(
        config.cluster,
        config.member,
        stored.incarnation,
        config.addresses.get("peer", ""),
        config.terms,
        {},
        generation=stored.generation or (FIRST_GENERATION if founds else 0),
        origin=stored.origin,
    )
    return own, Founding(own, config.founders, stored.pins) if founds else None


class MemberAdmission:
    """`wake` requests a turn of the group, `fail` stops the node for an error."""

    def __init__(
        self,
        introductions: Introductions,
        replica: Replica,
        *,
        journal: Journal,
        peers: Peers,
        wake: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._introductions = introductions
        self._replica = replica
        self._journal = journal
        self._peers = peers
        self._wake = wake
        self._fail = fail
        self._contacts = Contacts(replica.identity.member)
        self._dialled = _NOT_DIALLED
        self.refusals: dict[str, str] = {}
        """Members that refuse this node, with the reason."""
        self._met: dict[str, int] = {}
        """Members admitted while this node had no generation, with theirs."""
        self._of_others: set[str] = set()
        """Members of another generation admitted before this node took a generation."""

    def missing_founders(self) -> list[str]:
        return self._introductions.missing_founders()

    @property
    def generation(self) -> int:
        return self._introductions.generation(self._replica.membership)

    def greeting(self) -> dict[str, Any]:
        return self._introductions.greeting(self._committed_members(), self.generation).to_wire()

    def judge(self, wire: Mapping[str, Any]) -> str | None:
        """The reason of a refusal, or None if the member is admitted. It may also be a reason for this node to stop."""
        try:
            return self._judged(Greeting.from_wire(wire))
        except ValueError as error:
            return str(error)
        except (DataDirectoryError, MustJoin) as error:
            self._fail(error)
            return str(error)

    def _judged(self, peer: Greeting) -> str | None:
        own = self.generation
        reason = self._introductions.judge(peer, self._committed_members(), own)
        is_of_another = reason is not None and refusing_generation(reason) is not None
        if is_of_another and peer.generation > own and not self._replica.membership.members:
            raise self._outlived(
                left_behind(self._replica.identity.member, peer.member, peer.generation, own), peer.member
            )
        if reason is None:
            self._contacts.met(peer)
            if own == UNKNOWN:
                self._met[peer.member] = peer.generation
            self._of_others.discard(peer.member)
            self._pin(peer)
        return reason

    def refused(self, member: str, reason: str) -> None:
        """This node stops if the group has moved on without it, or will never admit it."""
        if self.refusals.get(member) != reason:
            log.warning("refused by a member: member=%s reason=%s", member, reason)
        self.refusals[member] = reason
        membership = self._replica.membership
        try:
            self._introductions.refused(member, reason, membership)
        except DataDirectoryError as error:
            self._fail(error)
        own, founds = self._replica.identity.member, self._introductions.founds(membership)
        newer_ones_go_on = outlived(own, self.generation, membership, self.refusals, founds=founds)
        if newer_ones_go_on is not None:
            self._fail(self._outlived(newer_ones_go_on, member))

    def _outlived(self, text: str, member: str) -> DataDirectoryError | MustJoin:
        """A newer generation, that of `member`, continues without this node."""
        if self._introductions.founds(self._replica.membership):
            return MustJoin(new_storage(self._replica.identity.member, member))
        return DataDirectoryError(text)

    def connected(self, member: str) -> None:
        """Both sides have admitted each other."""
        self.refusals.pop(member, None)
        self.report_pins()

    def lost(self, member: str) -> None:
        """It is asked again: its earlier refusal is outdated."""
        self.refusals.pop(member, None)

    def accepts(self, member: str, kind: int) -> bool:
        """Whether its messages are processed: not those of another generation. A joining node has no generation and
        admits all; it takes that of the first leader that sends to it, durably before it takes any data."""
        if kind in TO_TAKE_IN and self.generation == UNKNOWN and self._met.get(member, UNKNOWN) != UNKNOWN:
            self._join(self._met[member])
        return member not in self._of_others

    def _join(self, generation: int) -> None:
        self._introductions.joins(generation)
        keep_generation(self._journal, generation)
        self._of_others = {member for member, of in self._met.items() if not may_work_together(of, generation)}
        self._met = {}
        if self._of_others:
            log.info("log of a newer generation accepted: generation=%d before=%s", generation, self._of_others)
            guests = self._contacts.guests(self._replica.membership)
            self._peers.set_members({member: at for member, at in guests.items() if member not in self._of_others})
            self._dialled = _NOT_DIALLED

    def _committed_members(self) -> Membership:
        """An uncommitted change may be undone, perhaps by the very member that it would remove."""
        return self._replica.membership_at(self._replica.engine.commit_index)

    def _pin(self, peer: Greeting) -> None:
        """Pin the storage of a founding member, and send the pins to all founding members once they are durable."""
        before = dict(self._introductions.pins or {})
        self._introductions.saw(peer)
        pins = self._introductions.pins
        if pins is not None and pins != before:
            keep_pins(self._journal, pins)
        self.report_pins()
        self.found()

    def report_pins(self) -> None:
        pins = self._introductions.pins
        if pins is not None:
            for member in sorted(self._peers.connected()):
                self._replica.outbox.send_durable(member, MessageKind.FOUNDING, [dict(pins)])

    def reported(self, member: str, pins: Mapping[str, str]) -> None:
        self._introductions.reported(member, pins)
        self.found()

    def found(self) -> None:
        """Adopt the first membership, once all founding members agree on it."""
        membership = self._introductions.found()
        if membership is not None:
            keep_membership(self._journal, membership)
            self._replica.establish(membership)
            self._wake()

    def dial(self, now: float) -> None:
        """Maintain the required connections. `now`: monotonic, in seconds.

        Also called after a change of membership is committed: a removed member learns of it when it dials again.
        """
        committed = self._committed_members()
        wanted = self._contacts.wanted(self._replica.membership, committed, now)
        if (committed.version, wanted) != self._dialled:
            self._dialled = (committed.version, wanted)
            self._peers.set_members(wanted)
