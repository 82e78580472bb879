"""The answers of one frame of writes, of which some touch strict regions: only those wait for their release.

Which ones is looked at when the frame comes, and again when its outcome does, if it may be otherwise by then. They wait
together, until the last of them is released; where that is not in time, each is told for itself how it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metastore.codec import decode_fields, unpack_command
from metastore.put_series import results_in
from node.stream.checks import Checked
from raftgroup.proposals import Applied
from service.ports import Done, Outcome
from service.strict_commands import Prefixes, fields_are_strict
from service.strict_responses import Late, StrictAnswers


def when_released(
    strict: StrictAnswers, items: Sequence[Checked], timeout_s: float, done: Callable[[Sequence[Checked]], Done]
) -> Done:
    """`done`: what is called with the outcome of these items."""
    prefixes = strict.prefixes
    some = any(item.strict for item in items)
    first = strict_apart(strict, items, timeout_s, done) if some else done(items)

    def again(outcome: Outcome) -> None:
        strict_apart(strict, [_looked_at(item, strict.prefixes) for item in items], timeout_s, done)(outcome)

    return strict.looked_at_again(prefixes, first, again, timeout_s, each_as_it_stands(strict, items, done))


def _looked_at(item: Checked, prefixes: Prefixes) -> Checked:
    touches = fields_are_strict(unpack_command(item.command), prefixes, lambda fields: decode_fields(fields)[0])
    return item._replace(strict=item.strict or touches)


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
        if places:
            late = each_as_it_stands(strict, [items[place] for place in places], done)
            strict.hold(part(places), timeout_s, late)(some(outcome, places))

    return both


def each_as_it_stands(
    strict: StrictAnswers, items: Sequence[Checked], done: Callable[[Sequence[Checked]], Done]
) -> Late:
    """Each write of a series, too: they have revisions of their own, and what was refused waits for no release."""

    def late(outcome: Applied) -> None:
        for item, result in zip(items, outcome.results, strict=True):
            for number, each in enumerate(results_in(result) or [result], item.number):
                single = item._replace(number=number, puts=1)
                done([single])(strict.as_it_stands(outcome._replace(results=[each])))

    return late
