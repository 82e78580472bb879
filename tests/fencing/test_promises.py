"""What the promise of a holder to serve nothing covers: the requests up to its time, of the process that gave it."""

from __future__ import annotations

from palisade.fencing.messages import FencedMessage
from palisade.fencing.registry import Holding, Registration
from palisade.fencing.timing import FenceTiming

TERM = 2


def holding() -> Holding:
    """Of a holder whose process is the first one."""
    found = Holding(Registration("n1", "vault", 3.0), FenceTiming())
    assert found.record_heartbeat(1, 5.0)
    return found


def test_promise_does_not_cover_a_later_request_that_arrived_before_an_earlier_one() -> None:
    """The earlier one is from a connection before: its grant does not replace the later one."""
    held = holding()
    held.grant(5.0, 5.0, 0)
    held.grant(3.0, 5.1, 0)
    assert not held.promise(FencedMessage(TERM, 4.0), 5.2)
    assert held.lease_before(1) == 5.1
    assert held.promise(FencedMessage(TERM, 5.0), 5.3)


def test_promise_of_a_later_process_counts_by_its_own_clock() -> None:
    """The clock begins anew with the machine: strict writes would wait for the whole lease of the process before."""
    held = holding()
    held.grant(9_000.0, 5.0, 0)
    assert held.record_heartbeat(2, 6.0)
    assert held.promise(FencedMessage(TERM, 7.0), 6.1)
    assert held.lease_before(1) is None
