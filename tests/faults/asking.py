"""Requests of mixed clients: after `ROUND` requests they move on to other keys, because with lost responses the
linearizability of a key with too many operations could not be decided."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from palisade.metastore.requests import Range, prefix_end
from tests.sim import asking
from tests.sim.asking import Keys, Span

STRICT = b"/strict/"
"""Every key below is in a strict region."""
EVENTUAL = b"/strict-not/"
"""Outside of strict regions, and directly before them in the order of keys: one range has both."""
ROUND = 60
MIXED = 0.15
"""The share of fenced reads with keys of both kinds."""


class Asking(asking.Asking):
    """`name`: part of the keys, which no other client has written: `/strict/NAME/ROUND/a` and
    `/strict-not/NAME/ROUND/a`."""

    def __init__(self, name: str, chance: Random, newest: Callable[[], int]) -> None:
        self.prefixes = tuple(region + f"{name}/".encode() for region in (STRICT, EVENTUAL))
        self._both_kinds = self.prefixes[1], prefix_end(self.prefixes[0])
        super().__init__(chance, newest, self._round, ROUND)

    def _round(self, number: int) -> Keys:
        strict, eventual = (prefix + b"%d/" % number for prefix in self.prefixes)
        spans: tuple[Span, ...] = (strict, prefix_end(strict)), (eventual, prefix_end(eventual))
        return Keys(
            strict=(strict + b"a", strict + b"b"),
            eventual=(eventual + b"a", eventual + b"b"),
            owned=(strict + b"owner", eventual + b"owner"),
            spans=spans,
            ranges=(*spans, self._both_kinds),
            partial=spans,
        )

    def fenced(self) -> Range:
        """A read of a vault: of a strict key, or of all keys, strict and other ones, as of one revision."""
        self.count()
        return self.mixed() if self._chance.random() < MIXED else Range(self._chance.choice(self.keys.strict))

    def mixed(self) -> Range:
        """Contains keys of others if there are any between."""
        return Range(*self._both_kinds)

    def leased(self) -> bytes:
        """A key that is attached to a lease."""
        return self._chance.choice(self.keys.owned)


def is_mixed(request: Any) -> bool:
    """Whether it is as of `Asking.mixed`."""
    return isinstance(request, Range) and request.key.startswith(EVENTUAL) and request.range_end.startswith(STRICT)
