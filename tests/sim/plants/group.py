"""Faults of elections: terms, votes, eligible leaders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from palisade.node.config import RetentionConfig
from palisade.raftgroup import journal_identity, snapshots, voting
from palisade.raftgroup.durable_outbox import Outbox
from palisade.raftgroup.group import Group
from palisade.raftgroup.library import Engine
from palisade.raftgroup.membership import Membership
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.replica import Replica
from palisade.raftgroup.voting import Voting
from tests.sim.faults import Fault, Kind, Plan
from tests.sim.plants.plant import LEADERS_CUT_OFF, Patch, Stage, caught_by, with_faults
from tests.sim.world import Settings


@caught_by("words on disk")
def messages_before_they_are_on_disk(patch: Patch) -> None:
    def at_once(self: Outbox, member: str, kind: int, body: Any) -> bool:
        self._send(member, kind, body)
        return True

    patch.setattr(Outbox, "send_durable", at_once)


@caught_by("words on disk")
def votes_that_are_not_written_down(patch: Patch) -> None:
    set_term = MemoryJournal.set_term
    patch.setattr(MemoryJournal, "set_term", lambda self, term, vote: set_term(self, term, None))


@caught_by("words on disk")
def syncs_that_do_nothing(patch: Patch) -> None:
    """The journal reports data as synced that are not."""

    def lies(self: MemoryJournal, ended: Callable[[Exception | None], None]) -> None:
        self._writing = self._unwritten()
        self._ended(None)
        ended(None)

    patch.setattr(MemoryJournal, "begin_sync", lies)


@caught_by("election safety", on=LEADERS_CUT_OFF)
def candidates_that_elect_themselves(patch: Patch) -> None:
    """Without pre-votes, and without the votes of others."""
    ticked = Voting.ticked

    def leads(self: Voting) -> None:
        ticked(self)
        if self._engine.role is voting.RaftRole.CANDIDATE:
            for voter in sorted(self._electorate.membership.voters):
                self._engine.deliver_vote(voter, self._engine.term)

    patch.setattr(Voting, "may_campaign", lambda self: self._electorate.is_voter and self._is_free())
    patch.setattr(Voting, "ticked", leads)


@caught_by("terms", on=with_faults(Fault(6.0, Kind.CRASH, "n2", "n1", 0.5)))
def starts_in_the_term_before(patch: Patch) -> None:
    begin = Engine.__init__

    def begun(self: Engine, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        self._SyncObj__raftCurrentTerm = max(0, self.term - 1)

    patch.setattr(Engine, "__init__", begun)


@caught_by(
    "leader completeness",
    on=with_faults(
        *(
            fault
            for at, name in ((1.0, "n1"), (8.0, "n2"), (15.0, "n3"))
            for fault in (Fault(at, Kind.ISOLATE, name, "f1", 4.0), Fault(at + 3.5, Kind.CRASH, "leader", "n1", 3.0))
        ),
        seed=5,
    ),
)
def votes_for_any_log(patch: Patch) -> None:
    """Also for one that ends before the voter's own (Raft 5.4.1)."""
    ask = Engine.deliver_vote_request
    patch.setattr(voting, "log_is_current", lambda *_: True)
    patch.setattr(
        Engine, "deliver_vote_request", lambda self, candidate, term, *_: ask(self, candidate, term, 1 << 60, 1 << 60)
    )


TO_OTHERS_UNHEARD = with_faults(
    *(Fault(2.0 + 2.5 * number, Kind.TRANSFER, "n1", amount=0.95) for number in range(7)), seed=1
)
"""Leaders hand over, and receive nothing from other nodes from that moment on."""


@caught_by("linearizable", on=TO_OTHERS_UNHEARD)
def hand_overs_that_keep_the_lease(patch: Patch) -> None:
    """Its end was computed before, and counts on (issue 16)."""
    hand_over = Replica.hand_over

    def kept(self: Replica, target: str) -> bool:
        lease_until = self._lease_until
        done = hand_over(self, target)
        self._lease_until = lease_until
        return done

    patch.setattr(Replica, "hand_over", kept)


CHANGED_MEANWHILE = (
    Fault(3.0, Kind.LEFT_BEHIND, "n2", "n1", 6.0, 0.5),
    Fault(3.5, Kind.WIPE, "n3", "n1", 0.3),
    Fault(12.0, Kind.CRASH, "n2", "n1", 0.3),
    Fault(14.0, Kind.CRASH, "n2", "n1", 0.3),
)
LEFT_BEHIND_BY_A_CHANGE = Stage(
    "calm", 3, CHANGED_MEANWHILE, Settings(members=5, followers=0, retention=RetentionConfig(log_entries=10))
)
"""A member is added anew while another one is away, which gets a snapshot, and dies when that is its state."""
BACK_AFTER_A_CHANGE = (replace(CHANGED_MEANWHILE[0], amount=0.4), *CHANGED_MEANWHILE[1:])
"""The same; it does not die then, and is restarted twice later."""


@caught_by("membership matching", on=LEFT_BEHIND_BY_A_CHANGE)
def starts_that_keep_no_membership(patch: Patch) -> None:
    """Of a snapshot whose install a crash has met: the first start goes by it, the second one does not know it."""
    patch.setattr(journal_identity, "keep_membership", lambda *_: None)


def away_and_back(*targets: str, amount: float) -> Plan:
    """Members that are away until they need a snapshot; `amount` selects what happens then."""
    return tuple(
        Fault(1.0 + 7.0 * number, Kind.LEFT_BEHIND, name, "n1", 4.5, amount) for number, name in enumerate(targets)
    )


BEHIND_ON_A_SLOW_JOURNAL = Stage(
    "calm",
    3,
    away_and_back("n2", "n3", "n2", amount=0.9),
    Settings(followers=0, retention=RetentionConfig(log_entries=10)),
)
"""The snapshot is the state before a sync of the journal ends, and the process dies then."""


@caught_by("stays up", on=BEHIND_ON_A_SLOW_JOURNAL, says="one of them was lost or replaced")
def installs_that_do_not_wait_for_the_journal(patch: Patch) -> None:
    """The membership of the snapshot is not synced before the snapshot becomes the state (issue 16)."""
    install = snapshots.Snapshots._install

    class Unsynced:
        def __init__(self, journal: Any) -> None:
            self._journal = journal

        def __getattr__(self, name: str) -> Any:
            return getattr(self._journal, name)

        async def sync(self) -> None: ...

    async def at_once(self: snapshots.Snapshots, *of: Any) -> None:
        journal, self._journal = self._journal, Unsynced(self._journal)  # type: ignore[assignment]
        try:
            await install(self, *of)
        finally:
            self._journal = journal

    patch.setattr(snapshots.Snapshots, "_install", at_once)


@caught_by("membership matching", on=replace(LEFT_BEHIND_BY_A_CHANGE, seed=8, plan=BACK_AFTER_A_CHANGE))
def installs_that_keep_no_membership(patch: Patch) -> None:
    """The next start begins its log with the membership from before the snapshot (issue 16)."""

    def installed(self: Group, meta: Any, membership: Any) -> None:
        self._replica.installed_snapshot(meta.index, meta.term, membership)
        self._barrier.turned()
        self._wake()

    patch.setattr(Group, "installed", installed)


@caught_by(
    "removed members",
    on=Stage(
        "calm",
        3,
        (Fault(6.0, Kind.WIPE_AND_MORE, "n2", "n1", 3.0, 0.42),),
        Settings(retention=RetentionConfig(log_entries=5)),
    ),
    says="a member again",
)
def removed_storages_that_are_added_again(patch: Patch) -> None:
    """By their own join requests, which a node repeats until its log contains it."""
    patch.setattr(Membership, "_check_storage", lambda self, member: None)
