"""The status of a member and of the group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from palisade.raftgroup.admission import MemberAdmission
from palisade.raftgroup.membership import Member, MemberRole
from palisade.raftgroup.ports import Journal, Peers
from palisade.raftgroup.replica import Replica
from palisade.raftgroup.role import RaftRole


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """`connected`: to this node, and not silent, as a frozen process is. `match_index`: up to where it is known to hold
    the log; None if unknown, or if this node does not lead. `next_index`: of the next entry to send; None for this
    node, or if it does not lead. The counts are those of this node since its start: appends repeated for the member,
    snapshots that it installed."""

    member: Member
    connected: bool
    match_index: int | None
    installing_snapshot: bool
    next_index: int | None = None
    append_retries: int = 0
    snapshots_sent: int = 0


@dataclass(frozen=True, slots=True)
class GroupStatus:
    member: str
    incarnation: str
    role: RaftRole
    term: int
    leader: str | None
    commit_index: int
    applied_index: int
    first_index: int
    last_index: int
    synced_index: int
    lease_remaining_ms: int
    members: tuple[MemberStatus, ...]
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Members that refuse this node, with the reason. Connected members are not listed: an earlier refusal may arrive
    late, over another connection."""
    missing_founders: tuple[str, ...] = ()
    """Founding members that were not seen yet; the group cannot start without them."""
    elections_started: int = 0
    elections_won: int = 0
    snapshots_installed: int = 0

    @property
    def no_leader(self) -> str:
        """Why nothing can be agreed, with the voters that this node does not reach; empty if it knows a leader."""
        if self.leader is not None:
            return ""
        silent = [
            each.member.id for each in self.members if each.member.role is MemberRole.VOTER and not each.connected
        ]
        without = f"; not connected: {', '.join(silent)}" if silent else ""
        return f"no leader is known: a majority of the voters must be up and connected{without}"


def group_status(
    replica: Replica,
    journal: Journal,
    admission: MemberAdmission,
    peers: Peers,
    sends_snapshot_to: Callable[[str], bool],
) -> GroupStatus:
    """The status at this moment."""
    engine, own_id = replica.engine, replica.identity.member
    connected, answering = peers.connected(), peers.answering() | {own_id}
    return GroupStatus(
        member=own_id,
        incarnation=replica.identity.incarnation,
        role=replica.role,
        term=engine.term,
        leader=replica.leader,
        commit_index=engine.commit_index,
        applied_index=engine.applied_index,
        first_index=journal.first.index,
        last_index=journal.last.index,
        synced_index=journal.synced_index,
        lease_remaining_ms=max(0, int(replica.lease_remaining_s() * 1000)),
        members=tuple(
            MemberStatus(
                member=member,
                connected=member.id in answering,
                match_index=engine.match_index(member.id) if engine.leads else None,
                installing_snapshot=sends_snapshot_to(member.id),
                next_index=engine.next_index(member.id) if engine.leads and member.id != own_id else None,
                append_retries=replica.replication.append_retries[member.id],
                snapshots_sent=replica.replication.snapshots_sent[member.id],
            )
            for member in replica.membership.members
        ),
        refusals={member: why for member, why in admission.refusals.items() if member not in connected},
        missing_founders=tuple(admission.missing_founders()),
        elections_started=replica.voting.elections_started,
        elections_won=replica.elections_won,
        snapshots_installed=replica.snapshots_installed,
    )
