"""What is staged over one connection, and from where on."""

from __future__ import annotations

from palisade.fencing.messages import Behind, Hello, HolderId, HolderPhase, JoinMessage, Row, StageMessage
from palisade.fencing.session import HolderSession

ME = HolderId("n1", "v", 1)


def hello(*, joined: bool, staged: int = 0, lv: int = 0) -> Hello:
    return Hello(ME, True, 3.0, HolderPhase.ACTIVE if joined else HolderPhase.FENCED, 10, joined, staged, lv, 3.31)


def none_strict(after: int) -> tuple[Row, ...]:
    return ()


def staged(session: HolderSession, lm: int, released: int | None) -> tuple[int, int, int] | None:
    """(chain, after, upto) of the next stage."""
    stage = session.next_stage(1, lm, released, none_strict)
    assert not isinstance(stage, Behind)
    return None if stage is None else (stage.chain, stage.after, stage.upto)


def test_joined_holder_continues_at_its_position() -> None:
    session = HolderSession(hello(joined=True, staged=5))
    assert staged(session, 8, None) == (10, 5, 8)
    assert staged(session, 8, None) is None
    assert staged(session, 9, None) == (10, 8, 9)


def test_stage_has_the_rows_after_the_last_one() -> None:
    session, row = HolderSession(hello(joined=True, staged=5)), (7, b"k", None)
    stage = session.next_stage(3, 8, None, lambda after: (row,) if after == 5 else ())
    assert stage == StageMessage(3, 10, 5, 8, (row,))


def test_query_of_lacking_revisions_sends_nothing() -> None:
    session = HolderSession(hello(joined=True, staged=5))
    assert [session.lacking(8, None) for _ in range(2)] == [(5, 8), (5, 8)]


def test_holder_gets_no_stage_before_it_joins() -> None:
    session = HolderSession(hello(joined=False))
    assert (session.joined, staged(session, 8, 8)) == (False, None)


def test_join_waits_for_rr_and_gets_unreleased_events() -> None:
    session = HolderSession(hello(joined=False))
    session.on_join(JoinMessage(11, 8))
    assert staged(session, 8, None) is None
    assert staged(session, 8, 6) == (11, 6, 8)


def test_join_with_lv_below_rr_gets_what_the_vault_lacks() -> None:
    session = HolderSession(hello(joined=False))
    session.on_join(JoinMessage(11, 4))
    assert staged(session, 8, 6) == (11, 4, 8)


def test_join_gets_a_stage_even_if_it_is_empty() -> None:
    session = HolderSession(hello(joined=False))
    session.on_join(JoinMessage(11, 8))
    assert staged(session, 8, 8) == (11, 8, 8)
    assert staged(session, 8, 8) is None


def test_repeated_or_late_join_has_no_effect() -> None:
    session = HolderSession(hello(joined=False))
    session.on_join(JoinMessage(12, 8))
    assert staged(session, 8, 8) == (12, 8, 8)
    session.on_join(JoinMessage(12, 8))
    session.on_join(JoinMessage(11, 3))
    assert staged(session, 9, 8) == (12, 8, 9)


def test_stage_after_a_new_join_begins_at_its_revision() -> None:
    session = HolderSession(hello(joined=True, staged=5))
    assert staged(session, 8, 8) == (10, 5, 8)
    session.on_join(JoinMessage(11, 7))
    assert staged(session, 8, 8) == (11, 7, 8)


def test_behind_stops_stages_until_the_next_join() -> None:
    session = HolderSession(hello(joined=True, staged=5))
    assert session.next_stage(1, 8, 8, lambda after: None) == Behind(1, 10, 8)
    assert staged(session, 9, 9) is None
    session.on_join(JoinMessage(11, 9))
    assert staged(session, 9, 9) == (11, 9, 9)


def test_each_release_is_sent_once() -> None:
    session = HolderSession(hello(joined=True))
    assert [session.release_due(rr) for rr in (None, 0, 3, 3, 2, 4)] == [False, False, True, False, False, True]
