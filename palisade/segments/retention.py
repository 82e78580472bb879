"""Decides which local segments have expired (P6, issue 4, seed 000: TTL). Pure.

A segment's age counts from the end of its interval. Its TTL rule is the catalog's for the path `demo.<data source>`,
else for `demo`; without a rule it never expires.

Guarantees, and why they hold:
- A clock jump alone deletes nothing. Wall clocks are set in steps, mostly after boot, and a wrong step is corrected
  by another step. Thus wall time is used only after it has agreed with the boot clock for SETTLE_S, and one pass
  removes at most a tenth of the local segments, oldest first.
- A segment is removed permanently only after `trash_s` in the trash, if it has expired by rules that were read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from palisade.catalog import keys
from palisade.catalog.ttl import has_expired, places_of, ttl_of
from palisade.segments.names import segment_named
from palisade.wire.segment_errors import SegmentError

DATABASE = "demo"
"""The catalog database whose TTL rules apply to the data sources of the demo catalog."""
FIRST, END = keys.at(keys.TTL, DATABASE), keys.at(keys.TTL, DATABASE) + b"0"
"""Every rule for a segment has a key with FIRST <= key < END."""
SETTLE_S = 300.0
STEP_S, SLEW = 1.0, 0.001
"""Largest difference between wall clock and boot clock that is not a jump: a constant, plus a share of the elapsed
time (NTP slews by at most 500 ppm)."""
SHARE = 10


class RulesUnknown(SegmentError):
    """The rules cannot be read through the fence now, so no segment is treated as expired."""

    retry = True


@dataclass(frozen=True, slots=True)
class Rules:
    """The rows from FIRST to END of one snapshot."""

    rows: Mapping[bytes, bytes] = field(default_factory=dict)
    _read: dict[str, int | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Caches the TTLs in ms by path, because a node has hundreds of segments of few data sources."""

    def expires(self, name: str, now_s: float) -> bool:
        """Whether the segment has expired. `now_s`: wall time since 1970."""
        return has_expired(end_ms(name), self._ttl_ms(path_of(name)), int(now_s * 1000))

    def _ttl_ms(self, path: str) -> int | None:
        if path not in self._read:
            self._read[path] = ttl_of(path, self.rows.get)
        return self._read[path]

    def of(self, name: str) -> tuple[bytes | None, ...]:
        """All rows that can have the segment's rule; None for a row that does not exist."""
        return tuple(self.rows.get(key) for key in places_of(path_of(name)))


def path_of(name: str) -> str:
    """`flights/...` -> `demo.flights`."""
    return f"{DATABASE}.{segment_named(name).data_source}"


def end_ms(name: str) -> int:
    return segment_named(name).id.interval.end_ms


@dataclass(slots=True)
class WallClock:
    """Wall time is steady once it has agreed with the boot clock for SETTLE_S. Boot counts as a jump."""

    jumps: int = 0
    jumped_s: float = 0.0
    """Size of the last jump."""
    _seen: tuple[float, float] | None = None
    _since_s: float = 0.0

    def see(self, wall_s: float, boot_s: float) -> bool:
        """Record both clocks; call once per pass. Returns whether wall time is steady."""
        gained = self._gained(wall_s, boot_s)
        if gained:
            self.jumps, self.jumped_s, self._since_s = self.jumps + 1, gained, boot_s
        self._seen = wall_s, boot_s
        return self.settles_in_s(boot_s) <= 0

    def still(self, wall_s: float, boot_s: float) -> bool:
        """Whether wall time is steady and has not jumped since the last `see`. Records nothing."""
        return self._seen is not None and not self._gained(wall_s, boot_s) and self.settles_in_s(boot_s) <= 0

    def settles_in_s(self, boot_s: float) -> float:
        return self._since_s + SETTLE_S - boot_s

    def _gained(self, wall_s: float, boot_s: float) -> float:
        """Seconds by which wall time has jumped against the boot clock since the last `see`; 0 without a jump."""
        if self._seen is None:
            return 0.0
        passed_s = boot_s - self._seen[1]
        gained = wall_s - self._seen[0] - passed_s
        return gained if abs(gained) > STEP_S + SLEW * max(passed_s, 0.0) else 0.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The actions of one pass, oldest first. At most `most` of `trash` and `most` of `purge` are executed."""

    trash: tuple[str, ...] = ()
    purge: tuple[str, ...] = ()
    restore: tuple[str, ...] = ()
    most: int = 1


def choose(
    rules: Rules, wall_s: float, counts: bool, held: Iterable[str], trashed: Mapping[str, float], trash_s: float
) -> Chosen:
    """`counts`: whether wall time is steady. `trashed`: seconds in the trash by name."""
    here = list(held)
    restore = tuple(sorted(name for name in trashed if not rules.expires(name, wall_s)))
    if not counts:
        return Chosen(restore=restore)
    most = max(1, (len(here) + len(trashed)) // SHARE)
    past = oldest_first(name for name in here if rules.expires(name, wall_s))
    gone = oldest_first(set(trashed).difference(restore, (name for name in trashed if trashed[name] < trash_s)))
    return Chosen(past, gone, restore, most)


def oldest_first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (end_ms(name), name)))


def still_expired(name: str, before: Rules, now: Rules, wall: WallClock, clocks: tuple[float, float]) -> bool:
    """Whether a segment that had expired by the rules `before` is to be removed. `now`: as read through the fence
    directly before the removal. `clocks`: wall time and boot clock in seconds."""
    return now.of(name) == before.of(name) and wall.still(*clocks) and now.expires(name, clocks[0])
