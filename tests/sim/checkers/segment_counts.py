"""A count over the nodes that a broker names is never wrong, and not refused while a replica can be reached (issue 17).

- *Right.* The rows of each published segment are those of its record. A segment that grows counts between what was
  acknowledged when the count began and what was sent when it ended. The segments are all that the committed rows of the
  answer's revision require, so there is no gap and no overlap, whatever is handed off or moved.
- *Available.* A count is UNAVAILABLE for a segment only if at some moment no node announced it, among those that were
  up and answered during the whole count, or if it was not loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from palisade.client.segment_query import Counted
from tests.sim.checkers.segment_copies import is_damaged
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.checkers.segment_rows import SegmentRows
from tests.sim.segment_states import SegmentState, SegmentStates, needed
from tests.sim.world import Checker
from tests.support.segment_oracle import expected, name_in
from tests.support.segment_writer import ALWAYS, SOURCE

STEADY_S = 5.0
"""So long after its start a node may still be announced for what it does not have any more."""
MOVES_MAX = 2
"""Of one segment during a count: each costs it an attempt."""


@dataclass(slots=True)
class CountBegun:
    """`silent`: nodes that did not answer. `starts`: of the nodes that are up, by node."""

    at: int
    acknowledged: Mapping[str, int]
    starts: Mapping[str, int]
    silent: set[str] = field(default_factory=set)
    answer: Mapping[str, Any] = field(default_factory=dict)


class SegmentCounts(Checker):
    name = "segment counts"

    @property
    def _states(self) -> SegmentStates:
        return self.world.checker(SegmentLookups).states

    @property
    def _rows(self) -> SegmentRows:
        return self.world.checker(SegmentRows)

    def begins(self) -> CountBegun:
        up = (self.world.hosts[node] for node in self.world.data_nodes)
        steady = {
            host.id: host.starts
            for host in up
            if host.healthy and host.is_active and self.world.now - host.began > STEADY_S
        }
        return CountBegun(self._states.latest.revision, dict(self._rows.acknowledged), steady)

    def counted(self, begun: CountBegun, found: Counted) -> None:
        state = self._states.at(found.revision)
        names = [each["segment"] for each in begun.answer["segments"]]
        self._check_segments(state, names, found)
        bounds = {name: self._bounds(state, begun, name) for name in names}
        least, most = (sum(each[side] for each in bounds.values()) for side in (0, 1))
        if not least <= found.rows <= most:
            self.fail(f"{found.rows} rows are counted at {found.revision}, of {least} to {most}: {bounds}, {found}")
        for name, rows in found.realtime.items():
            if not bounds[name][0] <= rows <= bounds[name][1]:
                self.fail(f"{rows} rows are counted in segment {name} at {found.revision}, of {bounds[name]}")
            self.world.count("count of rows: realtime")
        self.world.count("count of rows: complete" if found.rows else "count of rows: empty")

    def _check_segments(self, state: SegmentState, names: Collection[str], found: Counted) -> None:
        """The answer of the broker was for all times."""
        wanted = expected(state.rows, SOURCE, *ALWAYS)
        assert wanted is not None
        parts = [part.name for part in wanted.parts]
        if wanted.missing or sorted(name_in(name.encode()) or () for name in names) != sorted(parts):
            self.fail(f"{sorted(names)} are counted at {found.revision}, and the segments were {wanted}")

    def _bounds(self, state: SegmentState, begun: CountBegun, name: str) -> tuple[int, int]:
        rows, record = self._rows, state.record(name)
        assert record is not None
        if not record["digest"]:
            return begun.acknowledged.get(name, 0), rows.sent.get(name, 0)
        return record["rows"], record["rows"]

    def unavailable(self, begun: CountBegun, missing: Collection[str]) -> None:
        self.world.count("count of rows: unavailable")
        hosts = (self.world.hosts[node] for node in begun.starts if node not in begun.silent)
        steady = [host.id for host in hosts if host.healthy and host.starts == begun.starts[host.id]]
        states = self._states.since(begun.at)
        for name in missing:
            if is_damaged(self.world, name):
                continue
            served = [each.nodes(name, steady) for each in states if promised(each, name)]
            moves = sum(one != other for one, other in pairwise(served))
            if len(served) == len(states) and all(served) and moves <= MOVES_MAX:
                self.fail(
                    f"a count is UNAVAILABLE for segment {name}, although {served} announced it from revision "
                    f"{begun.at} on, were up and answered"
                )


def promised(state: SegmentState, name: str) -> bool:
    """Whether queries count on it."""
    record = state.record(name)
    return record is not None and needed(record) and bool(record["loaded"])
