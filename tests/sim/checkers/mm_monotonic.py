"""Of two places in the log the later one has the later MM and revision, on every replica, in every start (M6).

A store that was not flushed applies entries again, so a start may be at an older place than the previous one, with the
state of that place: but never at an older one than is on its disk.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from palisade.metastore.ordered_map import APPLIED_KEY, Table, decode_applied
from tests.sim.disk import Disk
from tests.sim.node import Host
from tests.sim.world import Checker, World

Place = tuple[int, int, int]
"""Index, revision, MM."""


class MmMonotonic(Checker):
    name = "MM monotonic"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._places: list[Place] = []
        """Of all replicas, by index."""
        self._looked: dict[str, tuple[object, ...]] = {}
        self._stored: dict[Disk, tuple[int, int]] = {}
        """Of each disk (number of flushes, index of the last flushed entry)."""

    def wired(self, host: Host) -> None:
        if host.follows:
            return
        self._look(host)
        index, (_, stored) = host.store._state.index, self._stored.get(host.disk, (0, 0))
        if index < stored:
            self.fail(f"the store of {host.id} begins at entry {index}, and it was on its disk up to entry {stored}")

    def turned(self, host: Host) -> None:
        if host.follows or host.store is None:
            return
        state = host.store._state
        found = host.node, state.revision, state.compacted
        if self._looked.get(host.id) != found:
            self._looked[host.id] = found
            self._look(host)
        self._note_stored(host.disk)

    def _look(self, host: Host) -> None:
        state = host.store._state
        place = state.index, state.revision, state.compacted
        number = bisect_left(self._places, (state.index,))
        if number < len(self._places) and self._places[number] == place:
            return
        for other in self._places[max(0, number - 1) : number + 1]:
            first, second = sorted((place, other))
            if second[1] < first[1] or second[2] < first[2] or second[0] == first[0]:
                self.fail(f"{host.id} is at {place} (index, revision, MM), and a replica was at {other}")
        insort(self._places, place)

    def _note_stored(self, disk: Disk) -> None:
        flushes, before = self._stored.get(disk, (0, 0))
        if flushes == disk.flushes:
            return
        index, _ = decode_applied(disk.stored[Table.META].get(APPLIED_KEY))
        if index < before:
            self.fail(f"entry {before} was on the disk of {disk.name}, and it is at {index} now")
        self._stored[disk] = disk.flushes, index
