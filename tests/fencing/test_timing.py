"""T_proceed is never too early (design.md, "Revision-bound leases"; F4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.fencing.timing import FenceTiming


def test_timing_defaults_match_the_design() -> None:
    timing = FenceTiming()
    assert timing.renew_every_s == pytest.approx(0.6)
    assert timing.proceed_s() == pytest.approx(3.0 * 1.02 + 0.25)


@given(st.floats(0.01, 1e5), st.floats(0, 0.4))
def test_the_slowest_lease_ends_before_the_fastest_wait(lease_s: float, drift: float) -> None:
    least_margin_s = lease_s * 2 * drift**2 / (1 - drift)
    timing = FenceTiming(fence_s=lease_s, drift=drift, margin_s=least_margin_s * 1.0001)
    longest_lease_s = lease_s / (1 - drift)
    shortest_wait_s = timing.proceed_s() / (1 + drift)
    assert shortest_wait_s >= longest_lease_s * (1 - 1e-12)


def test_proceed_s_covers_a_longer_lease_of_a_holder() -> None:
    timing = FenceTiming(drift=0.1, margin_s=0.25)
    assert timing.proceed_s(100.0) / 1.1 >= 100.0 / 0.9


@pytest.mark.parametrize(
    "wrong",
    [
        {"fence_s": 0},
        {"fence_s": float("nan")},
        {"fence_s": float("inf")},
        {"drift": 0.5},
        {"drift": -0.01},
        {"margin_s": 0.0},
        {"margin_s": -1.0},
        {"renewals_per_fence": 1},
        {"recovery_retry_min_s": 0},
        {"recovery_retry_max_s": 0.01},
    ],
)
def test_invalid_timing_is_rejected_with_the_field_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FenceTiming(**wrong)  # type: ignore[arg-type]
