"""Lines about a condition that lasts (issue 16: 785 near-equal lines in 17 minutes)."""

from __future__ import annotations

from palisade.base.recurring_line import RecurringLine


def test_recurring_line_is_written_once_then_at_growing_intervals_then_when_it_is_over() -> None:
    line = RecurringLine(first_s=10, longest_s=40)
    written = [(now, text) for now in range(1020) if (text := line.holds(f"attempt {now}", now)) is not None]
    times = [now for now, _ in written]
    assert times[:6] == [0, 10, 30, 70, 110, 150]
    assert len(times) < 30
    assert written[0][1] == "attempt 0"
    assert written[1][1] == "attempt 10 (for 10 s, 9 similar lines suppressed)"
    assert line.lasts
    assert line.over("connected", 1020.5) == "connected (after 1020.5 s)"
    assert line.over("connected", 1021) is None


def test_intervals_of_a_recurring_line_grow_after_its_steady_time() -> None:
    line = RecurringLine(first_s=2, longest_s=8, steady_s=6)
    assert [now for now in range(40) if line.holds("waiting", now) is not None] == [0, 2, 4, 6, 10, 18, 26, 34]


def test_recurring_line_begins_anew_after_it_was_over() -> None:
    line = RecurringLine()
    assert line.over("connected", 0) is None
    assert line.holds("down", 1) == "down"
    assert line.over("up", 2, quiet_s=1.5) is None
    assert line.over("up", 2, quiet_s=1.0) == "up (after 1.0 s)"
    assert line.holds("down", 3) == "down"
