"""Histories of the simulator and of the fault tests as files for the audit: it accepts a valid one, and finds what the
checkers find in the others, as far as it decides it (issue 18)."""

from __future__ import annotations

from pathlib import Path

import pytest

from palisade.pipeline.audit.in_memory import Audited, AuditLimits, audit
from palisade.wire.recorded_history import entries_of
from tests.sim import test_history_checkers as broken
from tests.sim.recorded_export import export
from tests.sim.stories import Broken, Story

FOUND: list[tuple[Broken, str]] = [
    (broken.acknowledged_and_lost, "lost-write"),
    (broken.acknowledged_as_pending_and_lost, "lost-write"),
    (broken.acknowledged_and_another_value, "two-values"),
    (broken.twice, "doubled-write"),
    (broken.one_revision_for_two, "order"),
    (broken.from_nowhere, "two-values"),
    (broken.another_past, "future-read"),
    (broken.a_past_that_lacks_a_key, "lost-write"),
    (broken.a_range_of_two_revisions, "lost-write"),
    (broken.a_txn_seen_half, "lost-write"),
    (broken.stale_at_a_member, "stale-read"),
    (broken.stale_out_of_a_vault, "stale-read"),
    (broken.new_then_old, "stale-read"),
    (broken.still_there_behind_a_delete, "stale-read"),
    (broken.a_compare_that_did_not_hold, "lost-write"),
    (broken.a_previous_row_that_was_not, "lost-write"),
]


def audited(story: Story, folder: Path) -> Audited:
    export(story.history, folder)
    files = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            files.append(list(entries_of(file, path.name)))
    return audit(files, AuditLimits(all_writers=True))


def test_audit_accepts_a_valid_history(tmp_path: Path) -> None:
    story = Story()
    broken.good(story)
    found = audited(story, tmp_path)
    assert not found.findings
    assert len(found.operations) == 13


@pytest.mark.parametrize(("plant", "kind"), [pytest.param(*each, id=each[0].__name__) for each in FOUND])
def test_audit_finds_a_broken_history(plant: Broken, kind: str, tmp_path: Path) -> None:
    story = Story()
    plant(story)
    assert kind in {finding.kind for finding in audited(story, tmp_path).findings}
