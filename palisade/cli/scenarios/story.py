"""A scenario as data, and the outcome of running one. Pure.

A scenario lists its checks in advance, each with a name. Running it has to make every check: one that was never made
counts as failed. A scenario also has the recovery case that the node's own report must name; `runner.py` checks this
for all scenarios.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Stage = TypeVar("Stage")
"""The environment of a scenario: `stage.Stage`, which imports this file."""
Report = dict[str, Any]
"""The shape of `recovery.report.RecoveryReport.as_dict`."""
CASE = "case"
"""The check of every scenario whose node writes a report."""


@dataclass(frozen=True, slots=True)
class Scenario(Generic[Stage]):
    """`case` and `reasons`: those that the report must name; None if no recovery may begin.

    `reasons`: the report's reason must begin with one of these. `must`: further checks, sentences by name. `play`
    returns the report to check.
    """

    name: str
    title: str
    source: str
    play: Callable[[Stage], Awaitable[Report | None]]
    must: Mapping[str, str]
    case: str | None = None
    reasons: tuple[str, ...] = ()
    limit_s: float = 90.0

    def promises(self) -> dict[str, str]:
        """All checks by name, the case first."""
        if self.case is None:
            return dict(self.must)
        why = " or ".join(repr(reason) for reason in self.reasons)
        said = f"the node's own report names case {self.case}" + (f", because of {why}" if why else "")
        return {CASE: said, **self.must}

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "case": self.case,
            "must_hold": self.promises(),
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class Check:
    """`seen`: the finding, if there is more to show than yes or no."""

    name: str
    must: str
    held: bool
    seen: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "must": self.must, "held": self.held, "seen": self.seen}


def plain(found: object) -> str:
    """Names and values as text: 'revisions replayed 0, snapshots 0'."""
    if isinstance(found, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {plain(value)}" for name, value in found.items()) or "none"
    if isinstance(found, list | tuple | set | frozenset):
        return ", ".join(map(plain, found)) or "none"
    return str(found)


@dataclass(frozen=True, slots=True)
class ScenarioEvent:
    """An event of a running scenario: `kind` is 'scenario', 'step', 'check', 'report' or 'end'."""

    kind: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"event": self.kind, **self.fields}


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """`error`: why it could not be completed, else empty. `folder`: where its files are kept, else empty."""

    scenario: Scenario[Any]
    steps: tuple[str, ...]
    checks: tuple[Check, ...]
    report: Report | None
    seconds: float
    error: str = ""
    folder: str | None = None

    @property
    def held(self) -> bool:
        return not self.error and all(check.held for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario.name,
            "held": self.held,
            "case": self.report["case"] if self.report else None,
            "seconds": round(self.seconds, 3),
            "steps": list(self.steps),
            "checks": [check.as_dict() for check in self.checks],
            "recovery": self.report,
            "error": self.error or None,
            "folder": self.folder,
        }


def judge_case(scenario: Scenario[Any], report: Report | None) -> Check | None:
    """None if no recovery may begin and none has begun."""
    if scenario.case is None:
        if report is None:
            return None
        return Check(CASE, "no recovery begins", False, f"case {report['case']}")
    must = scenario.promises()[CASE]
    if report is None:
        return Check(CASE, must, False, "there is no report")
    right = report["case"] == scenario.case
    why = not scenario.reasons or str(report["reason"]).startswith(scenario.reasons)
    return Check(CASE, must, right and why, f"case {report['case']}: {report['reason']}")


def complete(scenario: Scenario[Any], checks: list[Check]) -> list[Check]:
    """All checks; those that were never made count as failed."""
    reached = {check.name for check in checks}
    missing = [name for name in scenario.promises() if name not in reached]
    return [*checks, *(Check(name, scenario.promises()[name], False, "it was never checked") for name in missing)]
