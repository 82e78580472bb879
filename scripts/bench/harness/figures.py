"""Figures of several rounds, their medians, and their thresholds. Pure."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Round = Mapping[str, float]
"""Step -> figure."""


class Verdict(enum.Enum):
    PASS = "pass"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Threshold:
    """`at_least` or `at_most`, one of them; of the ratio or figure in its line. Neither: no threshold."""

    at_least: float | None = None
    at_most: float | None = None

    def judge(self, value: float) -> Verdict:
        low = self.at_least is None or value >= self.at_least
        high = self.at_most is None or value <= self.at_most
        return Verdict.PASS if low and high else Verdict.FAIL

    def __str__(self) -> str:
        if self.at_least is None and self.at_most is None:
            return "-"
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a report: `ours` compared with `theirs`, or with a threshold only."""

    title: str
    unit: str
    ours: float
    theirs: float | None
    value: float
    threshold: Threshold

    @property
    def verdict(self) -> Verdict:
        return self.threshold.judge(self.value)

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "unit": self.unit,
            "palisade": round(self.ours, 3),
            **({"etcd": round(self.theirs, 3), "ratio": round(self.value, 3)} if self.theirs is not None else {}),
            "wanted": str(self.threshold),
            "verdict": self.verdict.value,
        }


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    return {step: statistics.median(each[step] for each in rounds) for step in rounds[0]}


def versus(title: str, unit: str, ours: float, theirs: float, threshold: Threshold) -> Line:
    return Line(title, unit, ours, theirs, ours / theirs, threshold)


def alone(title: str, unit: str, value: float, threshold: Threshold) -> Line:
    return Line(title, unit, value, None, value, threshold)


def all_pass(lines: Sequence[Line]) -> bool:
    return all(line.verdict is Verdict.PASS for line in lines)
