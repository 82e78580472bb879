"""What a member says of itself and of the group."""

from __future__ import annotations

from dataclasses import dataclass

from raftgroup.membership import Member
from raftgroup.role import Role


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """`match_index`: what the leader knows it to hold; None where that is unknown or this node does not lead."""

    member: Member
    connected: bool
    match_index: int | None
    installing_snapshot: bool


@dataclass(frozen=True, slots=True)
class GroupStatus:
    member: str
    incarnation: str
    role: Role
    term: int
    leader: str | None
    commit_index: int
    applied_index: int
    first_index: int
    last_index: int
    synced_index: int
    lease_remaining_ms: int
    members: tuple[MemberStatus, ...]
