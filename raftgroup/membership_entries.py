"""Memberships as log entries: one byte for the kind of the entry, then the whole membership."""

from __future__ import annotations

import msgpack

from palisade.raftgroup.membership import Membership, MembershipLog
from palisade.raftgroup.ports import MEMBERSHIP, Journal

_SLICE_ENTRIES = 16
"""Entries read at a time: an entry is a batch, which may have megabytes."""


def membership_entry(membership: Membership) -> bytes:
    packed: bytes = msgpack.packb(membership.to_wire())
    return MEMBERSHIP + packed


def membership_in(command: bytes) -> Membership:
    """Raises ValueError for a malformed membership."""
    try:
        return Membership.from_wire(msgpack.unpackb(command[1:]))
    except TypeError as error:
        raise ValueError(str(error)) from error


def read_memberships(journal: Journal, memberships: MembershipLog) -> None:
    """The newest membership in the log is effective, committed or not (Raft thesis 4.1)."""
    index = journal.first.index + 1
    while index <= journal.last.index:
        entries = journal.slice(index, index + _SLICE_ENTRIES)
        for entry in entries:
            if entry.command[:1] == MEMBERSHIP:
                memberships.append(entry.index, membership_in(entry.command))
        index += len(entries)
