"""Removes one expired segment of the catalog with its file, step by step. Pure; the effects are passed in.

Guarantees, and why they hold:
- A file is deleted only while its segment has expired by rules that were read through the fence directly before. A
  refused read removes nothing.
- A file is deleted only after its segment is unused for every broker: `mark_unused` returns once the change is
  released, so each node has applied it or is fenced.
- If a segment has not expired after all, it is marked as used again, unless its record has changed meanwhile.
- After a crash, an unused segment may still have its file; the next run removes it.

A wall clock that was wrong before a worker began is not detected, so one run removes at most a tenth of the segments.

The decisions are those of the nodes' retention (`segments/retention.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from palisade.base.errors import PalisadeError
from palisade.catalog.publication import Manifest
from palisade.catalog.segment import SegmentRecord
from palisade.segments.retention import Rules, RulesUnknown, WallClock, choose, still_expired


class RemovalOutcome(enum.StrEnum):
    REMOVED = "removed"
    MARKED = "marked unused"
    """It has no file."""
    KEPT = "kept"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ExpiryTarget:
    """`revision`: of the record."""

    record: SegmentRecord
    revision: int

    @property
    def name(self) -> str:
        return str(self.record.segment)


@dataclass(frozen=True, slots=True)
class TargetRemoval:
    """The outcome for a target, and the reason."""

    name: str
    outcome: RemovalOutcome
    reason: str = ""


class RemovalPort(Protocol):
    """The effects. Each may raise PalisadeError; then it is unknown whether the effect happened."""

    def rules(self) -> Rules:
        """The rules, read through the fence now. Raises RulesUnknown."""
        ...

    def clocks(self) -> tuple[float, float]:
        """Wall time since 1970, and the boot clock; in seconds."""
        ...

    def mark_unused(self, target: ExpiryTarget) -> int:
        """Returns the revision, once every node has applied it or is fenced. 0: the record has changed."""
        ...

    def mark_used(self, target: ExpiryTarget, revision: int) -> bool:
        """Writes the record of the target if it still has this revision."""
        ...

    def delete_file(self, url: str, still: Callable[[], bool]) -> bool:
        """Deletes the file if `still()`, called directly before, is true. Returns the result of `still()`. Raises as
        `still`."""
        ...

    def delete_record(self, target: ExpiryTarget, revision: int) -> None:
        """Deletes the record if it still has this revision."""
        ...


def remove_expired(target: ExpiryTarget, port: RemovalPort) -> TargetRemoval:
    """Every failure is in the result, so the other targets are processed."""
    try:
        return _removed(target, port)
    except PalisadeError as error:
        return TargetRemoval(target.name, RemovalOutcome.SKIPPED, str(error))


def _removed(target: ExpiryTarget, port: RemovalPort) -> TargetRemoval:
    name, record, wall = target.name, target.record, WallClock()
    wall.see(*port.clocks())
    before = port.rules()
    if not wall.still(*port.clocks()):
        return TargetRemoval(name, RemovalOutcome.SKIPPED, "the wall clock of this worker is not steady yet")
    if not still_expired(name, before, before, wall, port.clocks()):
        return TargetRemoval(name, RemovalOutcome.KEPT, "it has not expired by the present rules")
    revision = port.mark_unused(target) if record.used else target.revision
    if not revision:
        return TargetRemoval(name, RemovalOutcome.SKIPPED, "its record has changed meanwhile")

    def still() -> bool:
        return still_expired(name, before, port.rules(), wall, port.clocks())

    try:
        gone = port.delete_file(record.url, still) if record.url else still()
    except RulesUnknown as error:
        return TargetRemoval(name, RemovalOutcome.SKIPPED, f"{error}{_used_again(target, revision, port)}")
    if not gone:
        return TargetRemoval(
            name, RemovalOutcome.KEPT, f"its rule or the wall clock changed{_used_again(target, revision, port)}"
        )
    if not record.url:
        return TargetRemoval(name, RemovalOutcome.MARKED)
    port.delete_record(target, revision)
    return TargetRemoval(name, RemovalOutcome.REMOVED)


def _used_again(target: ExpiryTarget, revision: int, port: RemovalPort) -> str:
    if not target.record.used or port.mark_used(target, revision):
        return ""
    return "; it was marked unused, and its record has changed since"


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """`targets`: oldest first. `left`: number of expired segments that are left for later runs."""

    targets: tuple[ExpiryTarget, ...]
    left: int


def expiry_plan(
    records: Mapping[SegmentRecord, int],
    manifests: Mapping[str, Manifest],
    rules: Rules,
    clocks: tuple[float, float],
) -> ExpiryPlan:
    """Segments to remove in one run: at most a tenth of all, as in a pass of a node. `records`: with their revisions.
    `manifests`: by data source. Unused segments are removed too if they have a file."""
    targets = {str(record.segment): ExpiryTarget(record, revision) for record, revision in records.items()}
    held = [
        name
        for name, each in targets.items()
        if each.record.used
        and not each.record.is_growing
        and manifests[each.record.segment.data_source].is_visible(each.record)
    ]
    unused = {name: 0.0 for name, each in targets.items() if not each.record.used and each.record.url}
    chosen = choose(rules, clocks[0], WallClock().see(*clocks), held, unused, 0.0)
    names = (*chosen.purge[: chosen.most], *chosen.trash[: chosen.most])
    return ExpiryPlan(tuple(targets[name] for name in names), len(chosen.purge) + len(chosen.trash) - len(names))
