"""Decides whether the operations of one key are consistent with a linearizable register. Pure; O(n log n).

The store returns the revision that wrote every version, so the order of writes is known and no search is needed. The
rules for a key:

1. A revision has one value and one writer (two-values).
2. A state of revision R contains every known version up to R: a read of revision R that returns version m contradicts
   each known version in (m, R] (lost-write), and m > R (future-read).
3. Between two versions of one life of the key, the version number grows at least by the known writes between them
   (lost-write).
4. Real time: a read that begins after a version was acknowledged, or returned by another such read, returns this or a
   later one (stale-read); it ends after the request of what it returns began (future-read).
5. With the change feed: it contains every acknowledged write of the revisions that it covers (lost-write), and what
   reads returned (never-committed).
6. If every writer was recorded: a value has at most as many revisions as requests (doubled-write).

An absent key is a deletion of unknown revision. It is a finding only if no deletion can explain it. That is known where
the change feed covers the revisions, or if every writer was recorded; else it is not decided.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from palisade.base.counted import counted
from palisade.pipeline.audit.findings import Finding, FindingKind

FINDINGS_MAX = 20
"""Of one key."""
NEVER = 1 << 62
NS_PER_MS = 1_000_000


class Act(NamedTuple):
    """The evidence of one operation about one key.

    `what`: wrote, maybe (a write without a response), saw, absent, or committed (of the change feed).
    `revision`: of a write its own, of a read that of its state; 0 if unknown. `mod_revision`, `create_revision` and
    `version`: of the version that it saw or wrote. `delete` of a write. `ordered`: the read promises real time.
    """

    key: bytes
    what: str
    invoked_ns: int
    completed_ns: int
    wall_ms: int
    operation: str
    revision: int
    mod_revision: int
    create_revision: int
    version: int
    digest: int | None
    delete: bool
    ordered: bool


WROTE, MAYBE, SAW, ABSENT, COMMITTED = "wrote", "maybe", "saw", "absent", "committed"
CERTAINTY = {what: place for place, what in enumerate((COMMITTED, WROTE, SAW, MAYBE, ABSENT))}


@dataclass(frozen=True, slots=True)
class Scope:
    """Known facts besides the operations. The change feed covers `first` to `last` (0: there is none), and was read
    when the wall clock was `read_wall_ms`: what was acknowledged before is not later than `last`. `all_writers`: every
    writer was recorded, and no key had a lease."""

    first: int = 0
    last: int = 0
    all_writers: bool = False
    read_wall_ms: int = 0

    def covers(self, revision: int) -> bool:
        return 0 < self.first <= revision <= self.last

    def must_have(self, act: Act) -> bool:
        """Whether the change feed must contain the version of `act`."""
        ended_ms = act.wall_ms + (act.completed_ns - act.invoked_ns) // NS_PER_MS
        return self.covers(act.mod_revision) or (act.mod_revision > self.last > 0 and ended_ms < self.read_wall_ms)

    def knows_deletes(self, after: int, until: int) -> bool:
        return self.all_writers or (self.covers(after) and until <= self.last)


@dataclass(slots=True)
class _Version:
    digest: int | None = None
    delete: bool | None = None
    create_revision: int = 0
    version: int = 0
    operation: str = ""
    """The acknowledged write."""
    invoked_ns: int = -1
    committed: bool = False


@dataclass(slots=True)
class _Key:
    scope: Scope
    versions: dict[int, _Version] = field(default_factory=dict)
    deletes: list[int] = field(default_factory=list)
    """Revisions of known and possible deletions, sorted."""
    any_delete: bool = False
    """A deletion without a response may have any revision."""

    def may_be_deleted(self, after: int, until: int) -> bool:
        if self.any_delete or not self.scope.knows_deletes(after, until):
            return True
        place = bisect_right(self.deletes, after)
        return place < len(self.deletes) and self.deletes[place] <= until


def check_key(acts: Sequence[Act], scope: Scope) -> list[Finding]:
    """The findings of one key. `acts` in any order. Of two acts that contradict each other, the less certain or later
    one is reported."""
    acts = sorted(acts, key=_order)
    known = _Key(scope)
    found = list(_learn(acts, known))
    found += _feed(known, acts)
    found += _states(known, acts)
    found += _numbers(known, acts)
    found += _real_time(known, acts)
    if scope.all_writers:
        found += _doubled(known, acts)
    return list(dict.fromkeys(found))[:FINDINGS_MAX]


def _order(act: Act) -> tuple[int, int, str, int, int, int]:
    """The same one for the same acts: tasks of Spark get them in any order."""
    certainty = CERTAINTY[act.what]
    return certainty, act.invoked_ns, act.operation, act.mod_revision, act.version, act.digest or 0


def _finding(kind: FindingKind, act: Act, revision: int, text: str) -> Finding:
    return Finding(kind.value, act.key, revision, act.operation, act.wall_ms, text)


# 1. The versions.


def _learn(acts: Iterable[Act], known: _Key) -> Iterator[Finding]:
    for act in acts:
        if act.what == MAYBE:
            known.any_delete |= act.delete and not act.revision
        if act.what in (ABSENT, MAYBE) or not act.mod_revision:
            if act.what in (WROTE, MAYBE) and act.delete and act.revision:
                known.deletes.append(act.revision)
            continue
        if act.delete:
            known.deletes.append(act.mod_revision)
        version = known.versions.setdefault(act.mod_revision, _Version())
        yield from _merged(version, act)
    known.deletes.sort()


def _merged(version: _Version, act: Act) -> Iterator[Finding]:
    revision = act.mod_revision
    if act.digest is not None:
        if version.digest is None:
            version.digest = act.digest
        elif version.digest != act.digest:
            yield _finding(FindingKind.TWO_VALUES, act, revision, f"two values of revision {revision}")
    if version.delete is None:
        version.delete = act.delete
    elif version.delete != act.delete:
        yield _finding(FindingKind.TWO_VALUES, act, revision, f"revision {revision} is both a put and a deletion")
    for name in ("create_revision", "version"):
        value, before = getattr(act, name), getattr(version, name)
        if value and before and value != before:
            yield _finding(
                FindingKind.TWO_VALUES, act, revision, f"revision {revision} has {name} {before} and {value}"
            )
        setattr(version, name, before or value)
    if act.what == COMMITTED:
        version.committed = True
    if act.what == WROTE:
        if version.operation and version.operation != act.operation:
            text = f"revision {revision} was acknowledged to {version.operation} and to {act.operation}"
            yield _finding(FindingKind.TWO_VALUES, act, revision, text)
        else:
            version.operation, version.invoked_ns = act.operation, act.invoked_ns


# 5. The change feed.


def _feed(known: _Key, acts: Iterable[Act]) -> Iterator[Finding]:
    for act in acts:
        if act.what not in (WROTE, SAW) or not known.scope.must_have(act):
            continue
        if known.versions[act.mod_revision].committed:
            continue
        if act.what == WROTE:
            text = f"revision {act.mod_revision} was acknowledged, and the change feed has no change of this key there"
            yield _finding(FindingKind.LOST_WRITE, act, act.mod_revision, text)
        else:
            text = f"a read returned revision {act.mod_revision}, at which the change feed does not change this key"
            yield _finding(FindingKind.NEVER_COMMITTED, act, act.mod_revision, text)


# 2. States of a revision.


def _states(known: _Key, acts: Iterable[Act]) -> Iterator[Finding]:
    revisions = sorted(known.versions)
    for act in acts:
        if act.what not in (SAW, ABSENT) or not act.revision:
            continue
        if act.what == SAW:
            if act.mod_revision > act.revision:
                text = f"the state of revision {act.revision} has a version of revision {act.mod_revision}"
                yield _finding(FindingKind.FUTURE_READ, act, act.mod_revision, text)
            place = bisect_right(revisions, act.mod_revision)
            if place < len(revisions) and revisions[place] <= act.revision:
                yield _missing(known, act, revisions[place], f"version {act.mod_revision}")
            continue
        place = bisect_right(revisions, act.revision)
        if place and not known.versions[revisions[place - 1]].delete:
            latest = revisions[place - 1]
            if not known.may_be_deleted(latest, act.revision):
                yield _missing(known, act, latest, "no such key")


def _missing(known: _Key, act: Act, revision: int, has: str) -> Finding:
    writer = known.versions[revision].operation
    by = f", acknowledged to {writer}" if writer else ""
    text = f"the state of revision {act.revision} has {has}, and lacks revision {revision}{by}"
    return _finding(FindingKind.LOST_WRITE, act, revision, text)


# 3. Version numbers.


def _numbers(known: _Key, acts: Sequence[Act]) -> Iterator[Finding]:
    puts = sorted(revision for revision, version in known.versions.items() if not version.delete)
    points: dict[int, dict[int, tuple[int, Act]]] = {}
    for act in acts:
        if act.what == SAW and act.version and act.create_revision:
            life = points.setdefault(act.create_revision, {act.create_revision: (1, act)})
            life[act.mod_revision] = (act.version, act)
    for life in points.values():
        ordered = sorted(life.items())
        for (earlier, (before, _)), (later, (number, act)) in pairwise(ordered):
            between = bisect_right(puts, later) - bisect_right(puts, earlier)
            if number - before < max(between, 1):
                text = (
                    f"version {number} of revision {later} is {number - before} after that of revision {earlier}, with "
                    f"{between} known writes in between"
                )
                yield _finding(FindingKind.LOST_WRITE, act, later, text)


# 4. Real time.


def _real_time(known: _Key, acts: Sequence[Act]) -> Iterator[Finding]:
    shown = [
        (act.completed_ns, act.mod_revision, act)
        for act in acts
        if act.mod_revision and act.completed_ns < NEVER and (act.what == WROTE or (act.what == SAW and act.ordered))
    ]
    shown.sort(key=lambda each: each[:2])
    place, floor, witness = 0, 0, ""
    reads = sorted((act for act in acts if act.what in (SAW, ABSENT) and act.ordered), key=lambda act: act.invoked_ns)
    for act in reads:
        while place < len(shown) and shown[place][0] < act.invoked_ns:
            if shown[place][1] > floor:
                floor, witness = shown[place][1], shown[place][2].operation
            place += 1
        if act.what == SAW and act.mod_revision < floor:
            text = f"it returned revision {act.mod_revision}, {witness} had completed with revision {floor} before"
            yield _finding(FindingKind.STALE_READ, act, act.mod_revision, text)
        elif act.what == ABSENT and floor and _is_stale(known, act, floor):
            text = f"it found no key, {witness} had completed with revision {floor} before, and nothing deleted it"
            yield _finding(FindingKind.STALE_READ, act, floor, text)
    for act in acts:
        if act.what == SAW and act.completed_ns < known.versions[act.mod_revision].invoked_ns:
            text = f"it completed before revision {act.mod_revision}, which it returned, was requested"
            yield _finding(FindingKind.FUTURE_READ, act, act.mod_revision, text)


def _is_stale(known: _Key, absent: Act, floor: int) -> bool:
    """A state of a revision is older than `floor`; one without a revision lacks it, and no deletion explains that."""
    if absent.revision:
        return absent.revision < floor
    return not known.versions[floor].delete and not known.may_be_deleted(floor, known.scope.last or NEVER)


# 6. Values written more often than requested.


def _doubled(known: _Key, acts: Iterable[Act]) -> Iterator[Finding]:
    puts = [act for act in acts if act.what in (WROTE, MAYBE) and not act.delete]
    if any(act.digest is None for act in puts):
        return
    requests = Counter(act.digest for act in puts)
    written: dict[int | None, list[int]] = {}
    for revision, version in sorted(known.versions.items()):
        if not version.delete and version.digest is not None:
            written.setdefault(version.digest, []).append(revision)
    for digest, act in {act.digest: act for act in puts}.items():
        revisions = written.get(digest, [])
        if len(revisions) > requests[digest]:
            text = f"its value was written at revisions {revisions[:5]}, requested {counted(requests[digest], 'time')}"
            yield _finding(FindingKind.DOUBLED_WRITE, act, revisions[-1], text)
