"""What replaying and what a snapshot would take, in seconds, before either is begun. Pure (R6).

Rough on purpose: it decides between ways that differ by a factor, and a wrong guess costs time, never correctness.
The rates are those of one machine (docs/performance.md); what a running replay measures replaces the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds for each: a revision replayed, a key that both sides look at, a key that is fetched, one snapshot more.

    `advantage`: how many times cheaper a snapshot has to be; a replay keeps order, and each listener its steps.
    """

    replay_s: float = 20e-6
    compare_key_s: float = 2.5e-6
    fetch_key_s: float = 20e-6
    snapshot_s: float = 0.1
    advantage: float = 2.0


def replay_estimate(missed: int, rates: Rates, measured_s: float | None = None) -> float:
    """`measured_s`: what one revision took in the replay that is under way."""
    return missed * (rates.replay_s if measured_s is None else measured_s)


def snapshot_estimate(missed: int, keys: int, rates: Rates) -> float:
    """With that many keys in the cluster. At worst each missed revision changed another key."""
    seconds = rates.snapshot_s + keys * rates.compare_key_s + min(missed, keys) * rates.fetch_key_s
    return seconds * rates.advantage
