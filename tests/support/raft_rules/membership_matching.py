"""At the base of its log a node knows the membership that was committed by then, which no entry of its log has.

It is kept beside the log, by compaction, by the install of a snapshot, and by a start that finishes one (issue 16).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from tests.support.onlooker import Member, Onlooker, View


class MembershipMatching(Onlooker):
    name = "membership matching"

    def __init__(self, world: View) -> None:
        super().__init__(world)
        self._committed: dict[int, Any] = {}
        """By the index of the entry."""
        self._order: list[int] = []
        self._looked_at: dict[str, tuple[object, ...]] = {}

    def turned(self, host: Member) -> None:
        if host.group is None or host.failed:
            return
        replica, base = host.group._replica, host.disk.journal.first.index
        changes = replica._memberships._changes
        looked_at = (host.starts, base, changes[-1][0], replica.engine.commit_index >= changes[-1][0])
        if self._looked_at.get(host.id) == looked_at:
            return
        self._looked_at[host.id] = looked_at
        for index, membership in changes[1:]:
            if index <= replica.engine.commit_index:
                self._commit(host, index, membership)
        if base:
            self._check_base(host, base, changes[0][1])

    def _commit(self, host: Member, index: int, membership: Any) -> None:
        known = self._committed.setdefault(index, membership)
        if known != membership:
            self.fail(f"{host.id} has membership {membership.version} at index {index}, others {known.version}")
        if known is membership and len(self._order) < len(self._committed):
            self._order = sorted(self._committed)

    def _check_base(self, host: Member, base: int, own: Any) -> None:
        """A base newer than any entry that was seen is recorded: a survivor continues alone without one, and an entry
        may be compacted before it is looked at."""
        place = bisect_right(self._order, base)
        is_provisional = own.version == 0 and own.members
        if not place or is_provisional:
            return
        expected = self._committed[self._order[place - 1]]
        if own.version > expected.version:
            self._commit(host, base, own)
        elif own != expected:
            self.fail(
                f"{host.id} begins its log at {base} with membership {own.version} of {len(own.members)} members, "
                f"committed by then was {expected.version} of {len(expected.members)}"
            )
