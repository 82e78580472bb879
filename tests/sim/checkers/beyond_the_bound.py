"""Which properties hold for clocks beyond the bound, and which do not (F3, scenarios.md "beyond the bound").

Leases rely on clocks whose rates are within a bound: the fence pages and so fenced reads, and the quorum lease and so
the leader's reads. Beyond the bound these may be stale; and the leases of keys are as long as the leader's clock says,
judged with its error. Raft does not rely on clocks: no acknowledged write is lost, writes are linearizable and happen
once, replicas are equal, watches are complete. So `EXCUSED` is all that may break, each violation is counted, and the
writes and the leases of the history are judged without its reads.
"""

from __future__ import annotations

from dataclasses import replace

from tests.sim.checkers import linearizable
from tests.sim.history import History
from tests.sim.seen import Begun, Ended, Moment
from tests.sim.world import Checker

EXCUSED = frozenset(("lease safety", "fenced reads", "linearizable"))


def writes_of(history: History) -> History:
    """The history without its reads."""
    reads = {operation.number for operation in history.operations() if operation.is_read}
    events = [each for each in history.events if not (isinstance(each, Begun | Ended) and each.number in reads)]
    return History.of(replace(each, at=Moment(place, each.at.at_s)) for place, each in enumerate(events))


class WritesOfHistory(Checker):
    name = "linearizable writes"

    def ended(self) -> None:
        found = linearizable.check(writes_of(self.world.history))
        if found:
            shown = "\n".join(found[:5])
            self.fail(f"{len(found)} violation(s)\n{shown}")
