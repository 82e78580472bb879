"""The answers of the two copies of a journal, with the times at which they were sent and received. Pure.

An answer counts for some moment between its request and its arrival. Thus if one answer arrived before a request was
sent, that order is certain: the later one must know every entry that the earlier one acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.ordered_answers import Answer, overtaken

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Appended:
    """`copy` acknowledged the entry with this number."""

    copy: str
    began: float
    ended: float
    number: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Read:
    """`last`: the last acknowledged entry that `copy` knew."""

    copy: str
    began: float
    ended: float
    last: int


@dataclass(slots=True)
class JournalHistory:
    """`cut_off`: (copy, from, to): the copy was active at the beginning, and could not become active again."""

    appended: list[Appended] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    cut_off: list[tuple[str, float, float]] = field(default_factory=list)

    def violations(self, entries: Mapping[int, bytes] | None = None) -> list[str]:
        """The first ones of each kind. `entries`: those of the journal at the end."""
        kinds = self._lost(entries), self._twice(), self._stale(), self._two_active()
        return [violation for found in kinds for violation in found[:SHOWN]]

    def _lost(self, entries: Mapping[int, bytes] | None) -> list[str]:
        if entries is None:
            return []
        return [
            f"entry {each.number} was acknowledged by {each.copy} as {each.content!r}, the journal has "
            f"{entries.get(each.number)!r}"
            for each in self.appended
            if entries.get(each.number) != each.content
        ]

    def _twice(self) -> list[str]:
        known: dict[int, Appended] = {}
        return [
            f"entry {each.number} was acknowledged by {known[each.number].copy} and by {each.copy}"
            for each in self.appended
            if known.setdefault(each.number, each) is not each
        ]

    def _stale(self) -> list[str]:
        """Answers that do not know an entry that was acknowledged before their request was sent."""
        acknowledged = [Answer(each.began, each.ended, each.number, each.copy) for each in self.appended]
        answers = [
            *(Answer(each.began, each.ended, each.last, each.copy) for each in self.reads),
            *(each._replace(value=each.value - 1) for each in acknowledged),
        ]
        return [
            f"{late.by} answered as of entry {late.value} after entry {known.value} was acknowledged"
            for late, known in overtaken(sorted(answers), acknowledged)
        ]

    def _two_active(self) -> list[str]:
        """Answers of a copy that was cut off, to requests sent after the other copy had answered one."""
        answers = [*self.appended, *self.reads]
        found = []
        for copy, begins, ends in self.cut_off:
            others = [each.ended for each in answers if each.copy != copy and begins < each.began]
            since = min(others, default=ends)
            found += [
                f"{copy} answered {each.began - since:.3f} s after another copy was active"
                for each in answers
                if each.copy == copy and since < each.began and each.ended < ends
            ]
        return found
