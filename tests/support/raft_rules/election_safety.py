"""At most one leader in a term (Raft 5.2)."""

from __future__ import annotations

from tests.support.onlooker import Member, Onlooker, View


class ElectionSafety(Onlooker):
    name = "election safety"

    def __init__(self, world: View) -> None:
        super().__init__(world)
        self._leaders: dict[int, str] = {}

    def turned(self, host: Member) -> None:
        if host.group is None:
            return
        engine = host.group._replica.engine
        if engine.leads and not host.failed:
            leader = self._leaders.setdefault(engine.term, host.id)
            if leader != host.id:
                self.fail(f"{leader} and {host.id} both lead term {engine.term}")
