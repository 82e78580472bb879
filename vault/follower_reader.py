"""A reader that also returns what the vault has not applied yet of a strict range, for components that follow it.

The component has the state of LV from its listener. With these changes it has the state as of a fenced read.
"""

from __future__ import annotations

from palisade.vault.read_drivers import run_async
from palisade.vault.read_policies import Unreachable, read_range
from palisade.vault.reader import VaultReader
from palisade.vault.snapshot_reads import RecentChanges, Rows, Unreleased, recent_changes


class FollowerReader(VaultReader):
    async def recent_async(self, start: bytes, end: bytes | None) -> RecentChanges | Rows:
        """What LV does not include of a strict range; or Rows, the whole range, if the cluster was asked.

        Raises as `get`.
        """

        def look(_: int) -> RecentChanges | Unreleased | Unreachable:
            found = self._look(lambda snapshot, released: recent_changes(snapshot, start, end, released))
            if isinstance(found, Unreachable):
                return found
            return Unreleased(found.needs, found) if found.needs else found

        course = read_range(self, start, end, look, self._now_s(), self._wait_s)
        return await run_async(course, self._ask_many(start, end, 0), self._now_s, self._changed)
