"""The figures of a benchmark. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))


@dataclass(frozen=True, slots=True)
class Figures:
    """`latencies_s`: of the successful requests, in ascending order. `failures`: code -> count."""

    seconds: float
    latencies_s: Sequence[float]
    failures: dict[str, int]

    @property
    def done(self) -> int:
        return len(self.latencies_s)

    @property
    def per_s(self) -> float:
        return self.done / self.seconds if self.seconds > 0 else 0.0

    def latencies_ms(self) -> dict[str, float]:
        """Empty without a successful request."""
        if not self.latencies_s:
            return {}
        mean = sum(self.latencies_s) / self.done
        named = {name: quantile(self.latencies_s, part) for name, part in QUANTILES}
        found = {"mean": mean, **named, "max": self.latencies_s[-1]}
        return {name: round(seconds * 1000, 3) for name, seconds in found.items()}


def quantile(ordered: Sequence[float], part: float) -> float:
    """The smallest value such that at least this share of the values does not exceed it."""
    return ordered[max(0, ceil(part * len(ordered)) - 1)]


def figures(seconds: float, latencies_s: Sequence[float], failures: dict[str, int]) -> Figures:
    return Figures(seconds, sorted(latencies_s), dict(sorted(failures.items())))
