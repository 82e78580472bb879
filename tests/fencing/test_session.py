"""What is staged over one connection, and from where on."""

from __future__ import annotations

from palisade.fencing.messages import Hello, HolderId, HolderPhase, JoinMessage
from palisade.fencing.session import HolderSession, StageRange

ME = HolderId("n1", "v", 1)


def hello(*, joined: bool, staged: int = 0, lv: int = 0) -> Hello:
    return Hello(ME, True, 3.0, HolderPhase.ACTIVE if joined else HolderPhase.FENCED, 10, joined, staged, lv, 3.31)


def test_joined_holder_continues_at_its_position() -> None:
    session = HolderSession(hello(joined=True, staged=5))
    due = session.next_range(8, None)
    assert due == StageRange(10, 5, 8)
    session.sent(due)
    assert session.next_range(8, None) is None
    assert session.next_range(9, None) == StageRange(10, 8, 9)


def test_holder_gets_no_stage_before_it_joins() -> None:
    session = HolderSession(hello(joined=False))
    assert (session.joined, session.next_range(8, 8)) == (False, None)


def test_join_waits_for_rr_and_gets_unreleased_events() -> None:
    session = HolderSession(hello(joined=False))
    session.on_join(JoinMessage(11, 8))
    assert session.next_range(8, None) is None
    assert session.next_range(8, 6) == StageRange(11, 6, 8)


def test_join_with_lv_below_rr_gets_what_the_vault_lacks() -> None:
    session = HolderSession(hello(joined=False))
    session.on_join(JoinMessage(11, 4))
    assert session.next_range(8, 6) == StageRange(11, 4, 8)


def test_join_gets_a_stage_even_if_it_is_empty() -> None:
    session = HolderSession(hello(joined=False))
    session.on_join(JoinMessage(11, 8))
    due = session.next_range(8, 8)
    assert due == StageRange(11, 8, 8)
    session.sent(due)
    assert session.next_range(8, 8) is None


def test_repeated_or_late_join_has_no_effect() -> None:
    session = HolderSession(hello(joined=False))
    session.on_join(JoinMessage(12, 8))
    session.sent(StageRange(12, 8, 8))
    session.on_join(JoinMessage(12, 8))
    session.on_join(JoinMessage(11, 3))
    assert session.next_range(9, 8) == StageRange(12, 8, 9)


def test_range_sent_before_a_new_join_does_not_count() -> None:
    session = HolderSession(hello(joined=True, staged=5))
    due = session.next_range(8, 8)
    session.on_join(JoinMessage(11, 8))
    assert due is not None
    session.sent(due)
    assert session.next_range(8, 8) == StageRange(11, 8, 8)


def test_behind_stops_stages_until_the_next_join() -> None:
    session = HolderSession(hello(joined=True, staged=5))
    session.behind()
    assert session.next_range(8, 8) is None


def test_each_release_is_sent_once() -> None:
    session = HolderSession(hello(joined=True))
    assert [session.release_due(rr) for rr in (None, 0, 3, 3, 2, 4)] == [False, False, True, False, False, True]
