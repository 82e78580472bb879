"""The strict changes that a replica knows: which it has applied, and which of them are not released yet. Pure.

Every member keeps one, so a new leader can stage at once what a holder lacks, and every member knows which of the
keys that it reads wait for a release. For each entry of the log it keeps the last revision and the changed keys: a
holder is staged the latest version of a key, which the leader reads from the store.

Changes applied before this log began count as unreleased until RR is known to have passed them: a starting node does
not know RR, and "unknown" must never be taken for "released".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from palisade.fencing.messages import Row
from palisade.service.strict_commands import Prefixes, touches
from palisade.vault.regions import REGIONS_PREFIX, Regions

_REVISION = itemgetter(0)
KEPT_CHANGES_MAX = 50_000
"""Beyond this the oldest are dropped: a holder that lags further recovers first."""


class StrictBatch(NamedTuple):
    """The changes of one log entry: the strict keys of after < revision <= upto, each once."""

    after: int
    upto: int
    keys: tuple[bytes, ...]

    @property
    def strict(self) -> tuple[int, int] | None:
        """The first and the last revision that may be strict; which of the entry's revisions are is not determined."""
        return (self.after + 1, self.upto) if self.keys else None


class StrictLog:
    """`bodies` reads the latest changes of keys from the store, `load` the regions, `revision` the latest revision."""

    def __init__(
        self, bodies: Callable[[Sequence[bytes]], list[Row]], load: Callable[[], Regions], revision: Callable[[], int]
    ) -> None:
        self._bodies, self._load, self._revision = bodies, load, revision
        self._regions = load()
        self.prefixes: Prefixes = ()
        """Every strict key begins with one of these prefixes."""
        self.latest = self._began = self._floor = revision()
        self.released: int | None = None
        """RR, as far as it is known here."""
        self._kept: deque[StrictBatch] = deque()
        self._kept_changes = 0
        self._pending: dict[bytes, int] = {}
        """The last revision of the entry that changed the key."""
        self._unreleased: deque[StrictBatch] = deque()
        self._former: list[tuple[int, Regions]] = []
        """Earlier versions of regions whose change is not released: a key is strict if it is in any version."""
        self._union()

    def reset(self) -> None:
        """The state was replaced as a whole: the changes are unknown."""
        self._regions = self._load()
        self.latest = self._began = self._floor = self._revision()
        self._kept.clear()
        self._kept_changes = 0
        self._pending.clear()
        self._unreleased.clear()
        self._former.clear()
        self._union()

    def _union(self) -> None:
        everything = (self._regions, *(regions for _, regions in self._former))
        found = {prefix for each in everything for prefix in each.strict_prefixes}
        self._prefixes_decide = not self._former and self._regions.prefixes_decide
        self.prefixes = tuple(sorted(prefix for prefix in found if not _covered(prefix, found)))

    def is_strict(self, key: bytes) -> bool:
        return self._regions.is_strict(key) or any(regions.is_strict(key) for _, regions in self._former)

    # What is applied

    def applied(self, changed: Sequence[bytes], before: int, latest: int) -> StrictBatch:
        """Keys were written in (before, latest]."""
        self.latest = latest
        prefixes = self.prefixes
        strict = [key for key in changed if key.startswith(prefixes)]
        if not strict:
            return StrictBatch(before, latest, ())
        if [key for key in strict if key.startswith(REGIONS_PREFIX)]:
            self._former.append((latest, self._regions))
            self._regions = self._load()
            self._union()
            strict = [key for key in changed if key.startswith(self.prefixes)]
        if not self._prefixes_decide:
            strict = list(filter(self.is_strict, strict))
        batch = StrictBatch(before, latest, tuple(dict.fromkeys(strict)))
        if batch.keys:
            self._keep(batch)
        return batch

    def _keep(self, batch: StrictBatch) -> None:
        """A member that catches up with the log applies changes that were released long ago."""
        self._kept.append(batch)
        self._kept_changes += len(batch.keys)
        if self.released is None or batch.upto > self.released:
            self._unreleased.append(batch)
            self._pending |= dict.fromkeys(batch.keys, batch.upto)
        elif self._former:
            self._forget_former(self.released)
        while self._kept_changes > KEPT_CHANGES_MAX:
            forgotten = self._kept.popleft()
            self._kept_changes -= len(forgotten.keys)
            self._floor = forgotten.upto

    # What is released

    def release(self, revision: int) -> bool:
        """RR is at least `revision`. Returns whether RR has grown."""
        if self.released is not None and revision <= self.released:
            return False
        self.released = revision
        while self._unreleased and self._unreleased[0].upto <= revision:
            for key in self._unreleased.popleft().keys:
                if self._pending.get(key, revision + 1) <= revision:
                    del self._pending[key]
        self._forget_former(revision)
        return True

    def _forget_former(self, revision: int) -> None:
        if self._former and self._former[0][0] <= revision:
            self._former = [each for each in self._former if each[0] > revision]
            self._union()

    @property
    def point(self) -> int:
        """Every strict change up to this revision is released, and none above it that is applied here."""
        if self.released is None or self.released < self._began:
            return self.released or 0
        return max(self._unreleased[0].after if self._unreleased else self.latest, self.released)

    @property
    def settled(self) -> bool:
        """No change that is applied here waits for a release."""
        return not self._unreleased and self.released is not None and self.released >= self._began

    def is_pending(self, start: bytes, range_end: bytes) -> bool:
        """Whether a key of the range has a change that is not released, as far as is known here."""
        if self.settled:
            return False
        if self.released is None or self.released < self._began:
            return touches(start, range_end, self.prefixes)
        if not range_end:
            return start in self._pending
        return any(start <= key and (range_end == b"\0" or key < range_end) for key in self._pending)

    # What a holder lacks

    def since(self, after: int) -> list[Row] | None:
        """The strict changes in (after, LM], the latest of each key; None if this log does not reach back that far."""
        if after < self._floor:
            return None
        keys: set[bytes] = set()
        for batch in reversed(self._kept):
            if batch.upto <= after:
                break
            keys.update(batch.keys)
        rows = [row for row in self._bodies(list(keys)) if row[0] > after]
        rows.sort(key=_REVISION)
        return rows


def _covered(prefix: bytes, by: set[bytes]) -> bool:
    """Whether a shorter prefix covers it: every written key is compared with all of them."""
    return any(prefix != other and prefix.startswith(other) for other in by)
