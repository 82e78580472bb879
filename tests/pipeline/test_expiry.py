"""Retention on Spark: no file is deleted by a rule that is not in force, nor before its segment is unused everywhere
(P6, seed 000, issue 18).

Random schedules: before each effect the rule may change, the node may be fenced, the record or the wall clock may
change, or the task may die; another task then repeats the removal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from palisade.base.http_request import Answer
from palisade.catalog.publication import Manifest
from palisade.catalog.segment import SegmentRecord
from palisade.catalog.ttl import TtlRule
from palisade.pipeline import expiry
from palisade.pipeline.expiry import (
    ExpiryPlan,
    ExpiryTarget,
    RemovalOutcome,
    TargetRemoval,
    expiry_plan,
    remove_expired,
)
from palisade.pipeline.jobs.retention import report_of
from palisade.pipeline.node_rules import rules_in
from palisade.segments.retention import SETTLE_S, Rules, RulesUnknown
from palisade.wire.segment_errors import NotRemoved
from tests.support.segment_names import name, segment

URL = "file:///data/day"
RECORD = SegmentRecord(segment(1), 1, 10, 100, "rows:" + "0" * 64, 1, loaded=True, url=URL)
GO, KEEP = TtlRule("demo.flights", 1), TtlRule("demo.flights", 10**15)
WALL_S, UP_S = 1_700_000_000.0, 10 * SETTLE_S


def rules_of(rule: TtlRule | None) -> Rules:
    return Rules({rule.key: rule.to_bytes()} if rule else {})


class Violation(AssertionError):
    """A deletion that must not happen."""


class Died(Exception):
    """The task ends between two effects."""


class World:
    """The cluster, the file and one worker. `events`: by name, how often of 1,000 effects they happen."""

    def __init__(self, random: Random, events: dict[str, int]) -> None:
        self.random, self.events = random, events
        self.rule: TtlRule | None = GO
        self.fenced = False
        self.record: SegmentRecord | None = RECORD
        self.revision = 1
        self.unused_everywhere = False
        self.file = True
        self.jumped_s = 0.0

    def happen(self) -> None:
        for event, often in self.events.items():
            if self.random.randrange(1000) < often:
                getattr(self, event)()

    def change_rule(self) -> None:
        self.rule = self.random.choice((GO, KEEP, None))

    def fence(self) -> None:
        self.fenced = not self.fenced

    def change_record(self) -> None:
        """Another program sets the replication factor."""
        if self.record is not None:
            self._write(replace(self.record, replicas=self.random.randint(1, 5)))

    def jump(self) -> None:
        self.jumped_s += 10**6

    def die(self) -> None:
        raise Died

    def _write(self, record: SegmentRecord | None) -> int:
        self.record, self.revision = record, self.revision + 1
        self.unused_everywhere = record is None or not record.used
        return self.revision

    # The port

    def rules(self) -> Rules:
        self.happen()
        if self.fenced:
            raise RulesUnknown("fenced")
        return rules_of(self.rule)

    def clocks(self) -> tuple[float, float]:
        return WALL_S + self.jumped_s, UP_S

    def mark_unused(self, target: ExpiryTarget) -> int:
        self.happen()
        return self._write(target.record.marked_unused()) if self.revision == target.revision else 0

    def mark_used(self, target: ExpiryTarget, revision: int) -> bool:
        self.happen()
        if self.revision != revision:
            return False
        self._write(replace(target.record, loaded=False))
        return True

    def delete_file(self, url: str, still: Callable[[], bool]) -> bool:
        self.happen()
        if not still():
            return False
        if self.fenced or not rules_of(self.rule).expires(name(1), WALL_S):
            raise Violation("deleted by a rule that is not in force")
        if not self.unused_everywhere:
            raise Violation("deleted while a broker may count on the segment")
        if self.jumped_s:
            raise Violation("deleted by a clock that has jumped during the removal")
        self.file = False
        self.happen()
        return True

    def delete_record(self, target: ExpiryTarget, revision: int) -> None:
        self.happen()
        if self.revision == revision:
            if self.file:
                raise Violation("a file without a record")
            self._write(None)


EVENTS = {"change_rule": 100, "fence": 100, "change_record": 30, "jump": 10, "die": 60}


def played(seed: int) -> tuple[World, list[TargetRemoval]]:
    """Runs of the job until the segment is gone, or ten; the last two without events, by a rule that has expired it."""
    world, found = World(Random(seed), EVENTS), []
    for number in range(10):
        if number == 8:
            world.events, world.fenced, world.rule = {}, False, GO
        if world.record is None:
            break
        world.jumped_s = 0.0
        try:
            found.append(remove_expired(ExpiryTarget(world.record, world.revision), world))
        except Died:
            continue
        if found[-1].outcome is RemovalOutcome.KEPT and world.record is not None and world.record.used is False:
            assert found[-1].reason
    return world, found


def test_file_is_deleted_only_by_a_rule_in_force_and_after_its_segment_is_unused() -> None:
    for seed in range(400):
        world, _ = played(seed)
        assert world.record is None, seed
        assert not world.file, seed


def test_random_schedules_reach_every_outcome() -> None:
    reasons = {(each.outcome, each.reason[:8]) for seed in range(400) for each in played(seed)[1]}
    assert {outcome for outcome, _ in reasons} == set(RemovalOutcome) - {RemovalOutcome.MARKED}
    assert len(reasons) >= 5


def stale_rule(patch: pytest.MonkeyPatch) -> None:
    """The rule that was read at the beginning is used for the deletion."""
    patch.setattr(expiry, "still_expired", lambda name, before, now, wall, clocks: before.expires(name, clocks[0]))


def no_look_at_the_act(patch: pytest.MonkeyPatch) -> None:
    """The rules are not read again; a fenced node deletes too."""
    patch.setattr(World, "rules", lambda self: (self.happen(), rules_of(GO))[1])


def no_mark(patch: pytest.MonkeyPatch) -> None:
    """The file is deleted first."""
    patch.setattr(World, "mark_unused", lambda self, target: self.revision)


def clock_that_jumped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expiry.WallClock, "still", lambda self, wall_s, boot_s: True)


def record_first(patch: pytest.MonkeyPatch) -> None:
    """The record is deleted before its file."""
    marked = World.mark_unused

    def deletes_too(self: World, target: ExpiryTarget) -> int:
        found = marked(self, target)
        self.delete_record(target, found)
        return found

    patch.setattr(World, "mark_unused", deletes_too)


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (stale_rule, "rule that is not in force"),
        (no_look_at_the_act, "rule that is not in force"),
        (no_mark, "may count on"),
        (clock_that_jumped, "clock that has jumped"),
        (record_first, "without a record"),
    ],
)
def test_planted_fault_is_seen(
    plant: Callable[[pytest.MonkeyPatch], None], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play() -> None:
        for seed in range(400):
            played(seed)

    plant(monkeypatch)
    with pytest.raises(Violation, match=text):
        play()


def quiet(**events: int) -> World:
    return World(Random(0), events)


def test_segment_whose_rule_changes_after_the_mark_is_used_again() -> None:
    world = quiet()
    mark = world.mark_unused
    world.mark_unused = lambda target: (mark(target), world.__setattr__("rule", KEEP))[0]  # type: ignore[method-assign]
    found = remove_expired(ExpiryTarget(RECORD, 1), world)
    assert found == TargetRemoval(name(1), RemovalOutcome.KEPT, "its rule or the wall clock changed")
    assert world.record == replace(RECORD, loaded=False)
    assert world.file


def test_segment_of_a_fenced_node_is_skipped_and_reported() -> None:
    world = quiet()
    world.fenced = True
    assert remove_expired(ExpiryTarget(RECORD, 1), world) == TargetRemoval(name(1), RemovalOutcome.SKIPPED, "fenced")
    assert world.record == RECORD


def test_segment_without_a_file_is_marked_unused_only() -> None:
    world = quiet()
    found = remove_expired(ExpiryTarget(replace(RECORD, url=""), 1), world)
    assert found.outcome is RemovalOutcome.MARKED
    assert world.record is not None
    assert world.file


def test_file_that_cannot_be_deleted_stays_for_the_next_run() -> None:
    world = quiet()

    def refuse(url: str, still: Callable[[], bool]) -> bool:
        raise NotRemoved("read-only file system")

    world.delete_file = refuse  # type: ignore[method-assign]
    found = remove_expired(ExpiryTarget(RECORD, 1), world)
    assert (found.outcome, found.reason) == (RemovalOutcome.SKIPPED, "read-only file system")
    assert world.record is not None
    again = quiet()
    again.record, again.unused_everywhere = world.record, True
    assert remove_expired(ExpiryTarget(world.record, 1), again).outcome is RemovalOutcome.REMOVED


def test_plan_takes_a_tenth_of_the_segments_the_oldest_first() -> None:
    records = {replace(RECORD, segment=segment(day)): day for day in range(1, 31)}
    pending = replace(RECORD, segment=segment(1, version=2), generation=9)
    unfiled = replace(RECORD, segment=segment(1, version=3), url="").marked_unused()
    gone = replace(RECORD, segment=segment(9, version=2)).marked_unused()
    manifests = {"flights": Manifest("flights", last=1)}
    found = expiry_plan(records | {pending: 1, unfiled: 1, gone: 7}, manifests, rules_of(GO), (WALL_S, UP_S))
    assert [each.name for each in found.targets] == [name(9, version=2), name(1), name(2), name(3)]
    assert [each.revision for each in found.targets] == [7, 1, 2, 3]
    assert found.left == 27
    assert expiry_plan(records, manifests, rules_of(KEEP), (WALL_S, UP_S)).targets == ()
    assert expiry_plan(records, manifests, rules_of(GO), (WALL_S, SETTLE_S / 2)).targets == ()


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (503, {"detail": "fenced"}),
        (200, {"answered_by": "default", "more": False, "kvs": []}),
        (200, {"answered_by": "vault", "more": True, "kvs": []}),
        (200, {"answered_by": "vault", "more": False, "kvs": [{}]}),
        (200, []),
        (200, None),
    ],
)
def test_answer_that_is_not_linearizable_gives_no_rules(status: int, content: object) -> None:
    with pytest.raises(RulesUnknown):
        rules_in(Answer(status, content, {}))


def test_rules_of_an_answer_are_its_rows() -> None:
    row = {"key": GO.key.decode(), "value": GO.to_bytes().decode()}
    found = rules_in(Answer(200, {"answered_by": "vault", "more": False, "kvs": [row]}, {}))
    assert found == rules_of(GO)


def test_dry_run_reports_what_a_run_would_remove() -> None:
    """The numbers of segments add up; it reported none as removed."""
    targets = (ExpiryTarget(RECORD, 1), ExpiryTarget(replace(RECORD, segment=segment(2)), 2))
    plan = ExpiryPlan(targets, 7)
    assert report_of(plan, None).text == "9 segments have expired: 2 would be removed by a run, 7 left for later runs"
    removals = [TargetRemoval(each.name, RemovalOutcome.REMOVED) for each in targets]
    assert report_of(plan, removals).text.startswith("9 segments have expired: 2 removed with their files, 0 without")
