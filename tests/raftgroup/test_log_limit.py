"""Log lines about errors of peers: a burst, then one per period; suppressed lines are counted."""

from __future__ import annotations

from palisade.base.log_rate_limit import LogLimit


def test_log_limit_passes_a_burst_and_then_one_line_per_period() -> None:
    limit = LogLimit(at_once=3, period_s=1.0)
    passed = [now / 10 for now in range(50) if limit.admit("line", now / 10)]
    assert passed == [0.0, 0.1, 0.2, 1.0, 2.0, 3.0, 4.0]


def test_log_limit_reports_the_suppressed_lines() -> None:
    limit = LogLimit(at_once=1, period_s=1.0)
    assert limit.admit("first", 0.0) == "first"
    assert limit.admit("second", 0.1) is None
    assert limit.admit("third", 0.2) is None
    assert limit.admit("fourth", 1.5) == "fourth (2 similar lines suppressed)"
    assert limit.admit("fifth", 3.0) == "fifth"


def test_log_limit_saves_up_only_a_few_lines_in_a_long_silence() -> None:
    limit = LogLimit(at_once=2, period_s=1.0)
    assert [limit.admit("line", 1e6) is not None for _ in range(4)] == [True, True, False, False]
