"""Which local partitions are past their time: the decision of retention (P6, issue 4, seed 000: TTL). Pure.

A partition holds one day of one table, so its age counts from the end of that day (UTC). Its rule is the one that the
catalog has for the path `demo.<table>`, or for `demo`; without one it is kept for ever.

What holds, and why:
- A clock that jumps deletes nothing by itself. Wall clocks are set in steps, mostly soon after the start of a machine,
  and a wrong step is set right by the same means. So wall time counts only when it has gone along with the boot clock
  for SETTLE_S; and then a pass takes a tenth of what is here, the oldest first.
- Only what was in the trash for a while, and is past its time by a rule that was read again, is removed for good.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from catalog import keys
from catalog.ttl import has_expired, places_of, ttl_of
from node.partitions.errors import PartitionError
from node.partitions.names import table_and_day

DATABASE = "demo"
"""The database of the catalog whose rules are for the tables of the demo catalog."""
FIRST, END = keys.at(keys.TTL, DATABASE), keys.at(keys.TTL, DATABASE) + b"0"
"""Every rule that can be for a partition is at a key with FIRST <= key < END."""
SETTLE_S = 300.0
STEP_S, SLEW = 1.0, 0.001
"""What a wall clock may gain or lose on the boot clock without having jumped: at once, and per second (NTP slews by at
most 500 ppm)."""
SHARE = 10
DAY_S = 86_400


class RulesUnknown(PartitionError):
    """The rules can't be read through the fence now: nothing is past its time."""

    retry = True


@dataclass(frozen=True, slots=True)
class Rules:
    """The rows of FIRST to END in one snapshot."""

    rows: Mapping[bytes, bytes] = field(default_factory=dict)
    _read: dict[str, int | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Those of paths that were asked for: a node has hundreds of partitions of a few tables."""

    def expires(self, name: str, now_s: float) -> bool:
        """Whether the partition is past its time. `now_s`: wall time since 1970."""
        ended_s = end_of_day_s(name)
        if ended_s is None:
            return False
        return has_expired(ended_s * 1000, self._ttl_ms(path_of(name)), int(now_s * 1000))

    def _ttl_ms(self, path: str) -> int | None:
        if path not in self._read:
            self._read[path] = ttl_of(path, self.rows.get)
        return self._read[path]

    def of(self, name: str) -> tuple[bytes | None, ...]:
        """All rows that can be the rule of a partition."""
        return tuple(self.rows.get(key) for key in places_of(path_of(name)))


def path_of(name: str) -> str:
    """`flights/2013-01-31` -> `demo.flights`."""
    return f"{DATABASE}.{table_and_day(name)[0]}"


def end_of_day_s(name: str) -> int | None:
    """None for a day that no calendar has: it never ends."""
    year, month, day = map(int, table_and_day(name)[1].split("-"))
    try:
        in_month = calendar.monthrange(year, month)[1]
        return calendar.timegm((year, month, day, 0, 0, 0)) + DAY_S if day <= in_month else None
    except ValueError:
        return None


@dataclass(slots=True)
class WallClock:
    """Whether wall time may be acted on: it has gone along with the boot clock for SETTLE_S.

    The start of the machine counts as the last jump before the first look.
    """

    jumps: int = 0
    jumped_s: float = 0.0
    """By how much, the last time."""
    _seen: tuple[float, float] | None = None
    _since_s: float = 0.0

    def see(self, wall_s: float, boot_s: float) -> bool:
        """At each look. Whether it counts now."""
        gained = self._gained(wall_s, boot_s)
        if gained:
            self.jumps, self.jumped_s, self._since_s = self.jumps + 1, gained, boot_s
        self._seen = wall_s, boot_s
        return self.settles_in_s(boot_s) <= 0

    def still(self, wall_s: float, boot_s: float) -> bool:
        """Between two looks: whether it counts, and has not jumped since."""
        return self._seen is not None and not self._gained(wall_s, boot_s) and self.settles_in_s(boot_s) <= 0

    def settles_in_s(self, boot_s: float) -> float:
        return self._since_s + SETTLE_S - boot_s

    def _gained(self, wall_s: float, boot_s: float) -> float:
        """On the boot clock since the last look; 0 for as little as clocks gain without a jump."""
        if self._seen is None:
            return 0.0
        passed_s = boot_s - self._seen[1]
        gained = wall_s - self._seen[0] - passed_s
        return gained if abs(gained) > STEP_S + SLEW * max(passed_s, 0.0) else 0.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one pass may do, the oldest first; of `trash` and of `purge` at most `most` each."""

    trash: tuple[str, ...] = ()
    purge: tuple[str, ...] = ()
    restore: tuple[str, ...] = ()
    most: int = 1


def choose(
    rules: Rules, wall_s: float, counts: bool, held: Iterable[str], trashed: Mapping[str, float], trash_s: float
) -> Chosen:
    """`counts`: whether wall time does. `trashed`: for how long each has been in the trash, in seconds."""
    here = list(held)
    restore = tuple(sorted(name for name in trashed if not rules.expires(name, wall_s)))
    if not counts:
        return Chosen(restore=restore)
    most = max(1, (len(here) + len(trashed)) // SHARE)
    past = oldest_first(name for name in here if rules.expires(name, wall_s))
    gone = oldest_first(set(trashed).difference(restore, (name for name in trashed if trashed[name] < trash_s)))
    return Chosen(past, gone, restore, most)


def oldest_first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (table_and_day(name)[1], name)))
