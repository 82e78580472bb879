"""The term of a node never goes back as long as it has its disk (Raft 5.1)."""

from __future__ import annotations

from tests.support.onlooker import Member, Onlooker, View


class Terms(Onlooker):
    name = "terms"

    def __init__(self, world: View) -> None:
        super().__init__(world)
        self._known: dict[str, tuple[object, int, int]] = {}

    def turned(self, host: Member) -> None:
        """On disk over all its starts; in memory, which may be ahead of the disk, within one."""
        if host.group is None:
            return
        term = host.group._replica.engine.term
        if self._known.get(host.id) == (host.disk, host.starts, term) or host.failed:
            return
        disk, start, known = self._known.get(host.id, (host.disk, host.starts, 0))
        if disk is host.disk and start != host.starts:
            known = min(known, host.disk.journal.disk.stored.term)
        if disk is host.disk and term < known:
            self.fail(f"the term of {host.id} went back from {known} to {term}")
        self._known[host.id] = host.disk, host.starts, term
