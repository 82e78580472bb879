"""The answers of one frame of writes, of which some touch strict regions: only those wait for their release."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from node.fencing.strict_answers import StrictAnswers
from node.group_face import Done, Outcome
from node.stream.checks import Checked
from raftgroup.proposals import Applied


def strict_apart(
    strict: StrictAnswers, items: Sequence[Checked], timeout_s: float, done: Callable[[Sequence[Checked]], Done]
) -> Done:
    """`done`: what is called with the outcome of these items."""
    places = [place for place, item in enumerate(items) if item.strict]
    rest = [place for place in range(len(items)) if not items[place].strict]

    def part(places: Sequence[int]) -> Done:
        return done([items[place] for place in places])

    def some(outcome: Outcome, places: Sequence[int]) -> Outcome:
        if not isinstance(outcome, Applied):
            return outcome
        return outcome._replace(results=[outcome.results[place] for place in places])

    def both(outcome: Outcome) -> None:
        if rest:
            part(rest)(some(outcome, rest))
        strict.hold(part(places), timeout_s)(some(outcome, places))

    return both
