"""Which segments are past their time, and whether the clock may say so (P6; issue 4: the retention worker)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.catalog.ttl import TtlRule
from palisade.segments.retention import SETTLE_S, SHARE, Rules, WallClock, choose, end_ms
from palisade.vault.regions import INFINITE_TTL
from tests.support.segment_names import name

DAY_S = 86_400
JANUARY = [name(day) for day in range(1, 32)]
NEW_YEAR_S = 1_356_998_400
"""2013-01-01T00:00:00Z."""
UP_S = 10_000.0


def rules(**ttl_s: int) -> Rules:
    found = [TtlRule(path.replace("__", "."), seconds * 1000) for path, seconds in ttl_s.items()]
    return Rules({rule.key: rule.to_bytes() for rule in found})


def test_age_counts_from_the_end_of_the_interval() -> None:
    assert end_ms(JANUARY[0]) == (NEW_YEAR_S + DAY_S) * 1000
    one_day = rules(demo__flights=DAY_S)
    assert not one_day.expires(JANUARY[0], NEW_YEAR_S + 2 * DAY_S)
    assert one_day.expires(JANUARY[0], NEW_YEAR_S + 2 * DAY_S + 0.001)


def test_table_rule_precedes_database_rule_and_no_rule_is_infinite() -> None:
    late = NEW_YEAR_S + 1000 * DAY_S
    assert not Rules().expires(JANUARY[0], late)
    assert rules(demo=DAY_S).expires(JANUARY[0], late)
    assert not rules(demo=DAY_S, demo__flights=2000 * DAY_S).expires(JANUARY[0], late)
    assert rules(demo=2000 * DAY_S, demo__flights=DAY_S).expires(JANUARY[0], late)
    for other in (rules(demo__weather=1), rules(flights=1), rules(demo__flights__x=1), rules(demo2=1)):
        assert not other.expires(JANUARY[0], late)


@pytest.mark.parametrize("row", [b"", b"nonsense", INFINITE_TTL, b'{"path":"demo.flights","ttl_ms":0}', b"\xff"])
def test_invalid_rule_keeps_everything(row: bytes) -> None:
    """F7: also where the database has a rule that would let it go."""
    key = TtlRule("demo.flights", 1).key
    assert not Rules({**rules(demo=1).rows, key: row}).expires(JANUARY[0], 1e12)


@settings(deadline=None)
@given(st.integers(0, 31), st.integers(0, 40), st.booleans())
def test_pass_takes_a_tenth_oldest_first(trashed: int, days: int, counts: bool) -> None:
    """A clock that is wrong takes nothing at once."""
    now_s = NEW_YEAR_S + (days + 1) * DAY_S + 1
    held, ages = JANUARY[trashed:], dict.fromkeys(JANUARY[:trashed], 10.0)
    chosen = choose(rules(demo=DAY_S), now_s, counts, held, ages, trash_s=10.0)
    past = [each for each in JANUARY if rules(demo=DAY_S).expires(each, now_s)]
    assert set(chosen.restore) == set(JANUARY[:trashed]) - set(past)
    if not counts:
        assert (chosen.trash, chosen.purge) == ((), ())
    else:
        assert list(chosen.trash) == [each for each in held if each in past]
        assert list(chosen.purge) == [each for each in ages if each in past]
        assert chosen.most == len(JANUARY) // SHARE


def test_trashed_segment_is_purged_only_after_trash_s() -> None:
    ages = {JANUARY[0]: 9.9, JANUARY[1]: 10.0}
    assert choose(rules(demo=1), 1e10, True, [], ages, trash_s=10.0).purge == (JANUARY[1],)


def test_steady_wall_clock_counts_after_settle_s_of_uptime() -> None:
    clock = WallClock()
    assert not clock.see(NEW_YEAR_S, SETTLE_S - 1)
    assert clock.see(NEW_YEAR_S + 1.0005, SETTLE_S)
    assert clock.still(NEW_YEAR_S + 1.1, SETTLE_S + 0.1)


@pytest.mark.parametrize("jump_s", [365 * DAY_S, 5.0, -5.0, -365 * DAY_S])
def test_wall_clock_counts_again_after_settle_s_without_a_jump(jump_s: float) -> None:
    clock = WallClock()
    assert clock.see(NEW_YEAR_S, UP_S)
    assert not clock.still(NEW_YEAR_S + 1 + jump_s, UP_S + 1)
    assert not clock.see(NEW_YEAR_S + 10 + jump_s, UP_S + 10)
    assert clock.jumped_s == pytest.approx(jump_s)
    assert not clock.see(NEW_YEAR_S + 9 + SETTLE_S + jump_s, UP_S + 9 + SETTLE_S)
    assert clock.see(NEW_YEAR_S + 10 + SETTLE_S + jump_s, UP_S + 10 + SETTLE_S)
    assert clock.jumps == 1


def test_wall_clock_that_jumps_back_has_to_settle_again() -> None:
    clock = WallClock()
    assert clock.see(NEW_YEAR_S, UP_S)
    assert not clock.see(NEW_YEAR_S + 1000, UP_S + 1)
    assert not clock.see(NEW_YEAR_S + 2, UP_S + 2)
    assert clock.jumps == 2


def test_long_pause_is_not_a_clock_jump() -> None:
    """Both clocks continue while it is suspended; wall time is slewed by at most 500 ppm."""
    clock = WallClock()
    assert clock.see(NEW_YEAR_S, UP_S)
    hours_s = 10 * 3600.0
    assert clock.see(NEW_YEAR_S + hours_s * 1.0005, UP_S + hours_s)
