"""Judges the history of clients of real processes by the checkers of the simulator. From a file:

python -m tests.faults.judge FILE...

Exit code 0: every history is valid; 1: one is not, or could not be decided; violations are printed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from palisade.metastore.results import RevisionEvents
from tests.faults.asking import STRICT, is_mixed
from tests.sim.checkers import fenced_reads, leases, linearizable, of_history
from tests.sim.checkers.exactly_once import puts_of
from tests.sim.history import History
from tests.sim.history_file import load
from tests.sim.seen import Begun, Committed, Ended, Event, Moment

SHOWN_MAX = 5
"""The result of one checker."""
CHECKS: dict[str, Callable[[History], list[str]]] = of_history.CHECKS | {
    "leases": leases.of_clients,
    "fenced reads": partial(fenced_reads.check, strict=(STRICT,)),
    "linearizable": lambda history: linearizable.check(without_mixed_ranges(history), strict=(STRICT,)),
}


def without_mixed_ranges(history: History) -> History:
    """Ranges of the keys of all rounds connect the histories of all keys, which cannot be decided then. `snapshots` and
    `fenced reads` judge them: all rows are of one revision, and none is older than what was returned before."""
    begun = [event for event in history.events if isinstance(event, Begun)]
    left_out = {event.number for event in begun if is_mixed(event.request)}
    kept = (event for event in history.events if not isinstance(event, Begun | Ended) or event.number not in left_out)
    return History.of(replace(event, at=Moment(place, event.at.at_s)) for place, event in enumerate(kept))


def judged(history: History) -> list[str]:
    """Violations and undecided parts, by the name of the checker."""
    return [f"{name}: {each}" for name, check in CHECKS.items() for each in check(history)[:SHOWN_MAX]]


def woven(history: History, revisions: Iterable[RevisionEvents]) -> History:
    """The same history with commits inserted: each revision as early as it can have been committed. A write is
    committed after its request, and after the previous revision; a client that read it earlier read a value that did
    not exist."""
    asked: dict[tuple[bytes, bytes], int] = {}
    for event in history.events:
        if isinstance(event, Begun):
            for put in puts_of(event.request):
                asked.setdefault((put.key, put.value), event.at.order)
    place, behind = -1, dict[int, list[RevisionEvents]]()
    for events in revisions:
        written = [each.kv for each in events.events if not each.delete]
        place = max(place, *(asked.get((kv.key, kv.value), -1) for kv in written), -1)
        behind.setdefault(place, []).append(events)
    return History.of(_ordered(history.events, behind))


def _ordered(events: Iterable[Event], behind: dict[int, list[RevisionEvents]]) -> Iterator[Event]:
    order = itertools.count()
    for committed in behind.get(-1, ()):
        yield Committed(Moment(next(order), 0.0), committed)
    for event in events:
        yield replace(event, at=Moment(next(order), event.at.at_s))
        for committed in behind.get(event.at.order, ()):
            yield Committed(Moment(next(order), event.at.at_s), committed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.judge", description=__doc__)
    parser.add_argument("file", nargs="+", type=Path, help="as a run that failed has left it in its folder")
    wrong = 0
    for file in parser.parse_args().file:
        history = load(file.read_text(encoding="ascii").splitlines())
        found = judged(history)
        wrong += bool(found)
        print(f"{file}: {len(history.operations())} operations, {len(history.watches())} watches: ", end="")
        print("\n".join(["inconsistent", *found]) if found else "consistent")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
