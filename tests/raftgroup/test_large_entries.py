"""An entry is a batch, which may have megabytes: a long log of them is never read into memory at once (issue 2,
memory).
"""

from __future__ import annotations

from collections.abc import Sequence

from palisade.raftgroup.membership import Member, MemberRole, Membership, MembershipLog
from palisade.raftgroup.membership_entries import membership_entry, read_memberships
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.ports import Entry

ENTRIES = 500
AT_ONCE = 16
"""16 batches of the largest size are 64 MiB."""


class Watched(MemoryJournal):
    """Records how many entries were read at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def slice(self, start: int, stop: int) -> Sequence[Entry]:
        found = super().slice(start, stop)
        self.asked.append(len(found))
        return found


def test_start_reads_memberships_a_few_entries_at_a_time() -> None:
    """Seen with a million puts in the log: 1,024 entries at a time were 120 MiB at every start."""
    joined = Membership((Member("n1", MemberRole.VOTER, "i1", {"peer": "127.0.0.1:1"}),))
    journal, memberships = Watched(), MembershipLog(Membership(()))
    for index in range(1, ENTRIES + 1):
        command = membership_entry(joined) if index == ENTRIES else b"\x00batch"
        journal.append(Entry(command, index, 1))
    read_memberships(journal, memberships)
    assert memberships.current == joined
    assert sum(journal.asked) == ENTRIES
    assert max(journal.asked) <= AT_ONCE
