"""Two logs that have the same index in the same term are the same up to there (Raft 5.3)."""

from __future__ import annotations

from tests.support.onlooker import Member, Onlooker, View

TURNS = 500


class LogMatching(Onlooker):
    name = "log matching"

    def __init__(self, world: View) -> None:
        super().__init__(world)
        self._turns = 0

    def ended(self) -> None:
        members = self.world.members
        for number, one in enumerate(members):
            for other in members[number + 1 :]:
                self._compare(one, other)

    def turned(self, host: Member) -> None:
        """Sometimes only: a comparison costs as much as the logs are long."""
        self._turns += 1
        if self._turns % TURNS == 0:
            self.ended()

    def _compare(self, one: Member, other: Member) -> None:
        left, right = one.disk.journal, other.disk.journal
        first = max(left.first.index, right.first.index)
        index = min(left.last.index, right.last.index)
        while index > first and left.term_at(index) != right.term_at(index):
            index -= 1
        if list(left.slice(first + 1, index + 1)) != list(right.slice(first + 1, index + 1)):
            self.fail(f"the logs of {one.id} and {other.id} agree at index {index} and differ below")
