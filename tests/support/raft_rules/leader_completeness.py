"""A leader has every entry that was committed in earlier terms (Raft 5.4).

In the earlier terms, not of them: an entry of an old term may be committed by a much later leader (Raft 5.4.2). The
winner of an even earlier term, which was paused until now, need not have it (seed 2057 of the scenario storm).
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.onlooker import Member, Onlooker, View


class LeaderCompleteness(Onlooker):
    name = "leader completeness"

    def __init__(self, world: View) -> None:
        super().__init__(world)
        self.entries: dict[int, tuple[int, int]] = {}
        """By index: the term of the entry, and that of the node that was the first to apply it, which is at least the
        one in which it was committed."""
        self._led: set[tuple[str, int]] = set()

    def applied(self, host: Member, index: int, term: int, commands: Sequence[bytes]) -> None:
        self.entries.setdefault(index, (term, term if host.group is None else host.group.term))

    def turned(self, host: Member) -> None:
        if host.group is None:
            return
        engine = host.group._replica.engine
        if not engine.leads or (host.id, engine.term) in self._led or host.failed:
            return
        self._led.add((host.id, engine.term))
        journal = host.disk.journal
        for index, (term, committed_in) in self.entries.items():
            if index > journal.first.index and committed_in < engine.term and journal.term_at(index) != term:
                self.fail(f"{host.id} leads term {engine.term} without the committed entry {index} of term {term}")
