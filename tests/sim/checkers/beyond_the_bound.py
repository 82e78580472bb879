"""What holds however wrong clocks are, and what does not (F3, scenarios.md "beyond the bound").

Leases count on clocks that go right within a bound: the fence pages, so fenced reads, and the quorum lease, so the
leader's reads. Beyond the bound these may show what is old; and the leases of keys are as long as the leader's clock
says, which is judged by how wrong it is. Raft does not count on clocks: nothing acknowledged is lost, writes are
linearizable and happen once, replicas are equal, watches are complete. So `EXCUSED` is all that may break, each breach
is counted, and the writes of the history are judged without its reads.
"""

from __future__ import annotations

from dataclasses import replace

from tests.sim.checkers import linearizable
from tests.sim.history import History
from tests.sim.seen import Begun, Ended, Moment
from tests.sim.world import Checker

EXCUSED = frozenset(("lease safety", "fenced reads", "linearizable"))


def writes_of(history: History) -> History:
    """As if nobody had read."""
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
