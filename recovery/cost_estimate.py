"""Estimates how long a replay and a snapshot would take, in seconds, before either is begun. Pure (R6).

Deliberately rough: it decides between ways that differ by a factor, and a wrong estimate costs time, never correctness.
The rates are those of one machine (docs/performance.md); the measured speed of a running replay replaces the first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds for each: a replayed revision, a key compared by both sides, a fetched key, one more snapshot.

    `advantage`: how many times cheaper a snapshot has to be, because a replay passes each revision to the listeners.
    """

    replay_s: float = 20e-6
    compare_key_s: float = 2.5e-6
    fetch_key_s: float = 20e-6
    snapshot_s: float = 0.1
    advantage: float = 2.0


def replay_estimate(missed: int, rates: Rates, measured_s: float | None = None) -> float:
    """In seconds. `measured_s`: the time per revision in the replay in progress."""
    return missed * (rates.replay_s if measured_s is None else measured_s)


def snapshot_estimate(missed: int, keys: int, rates: Rates) -> float:
    """In seconds, for `keys` keys in the cluster. At worst each missed revision changed another key."""
    seconds = rates.snapshot_s + keys * rates.compare_key_s + min(missed, keys) * rates.fetch_key_s
    return seconds * rates.advantage
