"""The checker of leases reports violations, and nothing that may be valid."""

from __future__ import annotations

import pytest

from palisade.metastore.requests import DeleteRange, LeaseGrant, LeaseKeepAlive, LeaseRevoke, Range
from palisade.metastore.results import DeleteRangeResult, LeaseResult, RangeResult
from tests.sim.checkers.leases import check, of_clients
from tests.sim.seen import Ok, Path, Unknown
from tests.sim.stories import A, B, Broken, E, Story

GRANT = LeaseGrant(2_000)


def with_a_lease(story: Story, *keys: bytes) -> None:
    story.said(GRANT, Ok(LeaseResult(1, 7, 2_000)))
    story.commit(*((key, b"1") for key in keys), lease=7)


def too_early(story: Story) -> None:
    with_a_lease(story, A)
    story.now_s = 1.9
    story.commit((A, None))


def too_early_behind_a_keep_alive(story: Story) -> None:
    with_a_lease(story, A)
    story.now_s = 1.5
    story.said(LeaseKeepAlive(7), Ok(LeaseResult(2, 7, 2_000)))
    story.now_s = 2.5
    story.commit((A, None))


def one_of_two_keys(story: Story) -> None:
    with_a_lease(story, A, E)
    story.now_s = 3.0
    story.commit((A, None))


def writes_for(story: Story, seconds: float) -> None:
    until = story.now_s + seconds
    while story.now_s < until:
        story.now_s += 0.4
        story.put(B, b"%f" % story.now_s)


def never(story: Story) -> None:
    with_a_lease(story, A)
    writes_for(story, 6.0)


def revoked_and_there(story: Story) -> None:
    with_a_lease(story, A)
    story.said(LeaseRevoke(7), Ok(LeaseResult(2, 7, 0)))


def revoked_and_shown(story: Story) -> None:
    with_a_lease(story, A)
    old = story.state[A]
    number = story.history.begin("w", "n1", Path.LEADER, LeaseRevoke(7))
    story.commit((A, None))
    story.history.end(number, Ok(LeaseResult(3, 7, 0)))
    story.read(old, path=Path.VAULT_READER)


BROKEN_LEASES = (
    *(too_early, too_early_behind_a_keep_alive, one_of_two_keys, never, revoked_and_there, revoked_and_shown),
)
"""`test_history_checkers.py` detects them."""


def run_out(story: Story) -> None:
    with_a_lease(story, A, E)
    story.now_s = 2.0
    story.commit((A, None), (E, None))


def deleted_by_a_client(story: Story) -> None:
    with_a_lease(story, A, E)
    number = story.history.begin("w", "n1", Path.LEADER, DeleteRange(A))
    story.commit((A, None))
    story.history.end(number, Ok(DeleteRangeResult(3, 1)))


def perhaps_deleted_by_a_client(story: Story) -> None:
    with_a_lease(story, A, E)
    story.said(DeleteRange(b"s/", b"s0"), Unknown("a timeout"))
    story.commit((A, None))


def revoked_early(story: Story) -> None:
    with_a_lease(story, A, E)
    story.now_s = 0.5
    number = story.history.begin("w", "n1", Path.LEADER, LeaseRevoke(7))
    story.now_s = 0.6
    story.commit((A, None), (E, None))
    story.history.end(number, Unknown("a timeout"))


def perhaps_renewed(story: Story) -> None:
    with_a_lease(story, A)
    story.said(LeaseKeepAlive(7), Unknown("a timeout"))
    writes_for(story, 3.0)


def while_nobody_leads(story: Story) -> None:
    with_a_lease(story, A)
    for _ in range(5):
        story.now_s += 2.0
        story.put(B, b"%f" % story.now_s)


@pytest.mark.parametrize(
    "kept",
    [run_out, deleted_by_a_client, perhaps_deleted_by_a_client, revoked_early, perhaps_renewed, while_nobody_leads],
)
def test_lease_checker_accepts_valid_leases(kept: Broken) -> None:
    story = Story()
    kept(story)
    assert check(story.history) == []


@pytest.mark.parametrize(("answered_s", "violations"), [(1.9, 1), (2.0, 0)])
def test_lease_end_counts_from_its_report_if_revisions_are_early(answered_s: float, violations: int) -> None:
    story = Story()
    with_a_lease(story, A)
    story.commit((A, None))
    story.now_s = answered_s
    number = story.history.begin("r", "n2", Path.HTTP, Range(A))
    story.history.end(number, Ok(RangeResult(3, (), False, 0)))
    assert len(check(story.history)) == 1
    assert len(of_clients(story.history)) == violations


def test_unreported_lease_end_may_be_at_any_time() -> None:
    story = Story()
    with_a_lease(story, A)
    story.commit((A, None))
    assert of_clients(story.history) == []
