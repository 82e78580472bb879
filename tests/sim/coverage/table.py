"""What many runs have reached, compared with all possible rows: which are missing, and whether that is a failure. Pure.

Counts of runs and of worker processes are added up in any order. `wrong` are rows that are exempt and were reached, or
unknown to their group: the lists are out of date, however few seeds were run. A row that was never reached fails a run
of `ENOUGH` seeds of all scenarios; fewer seeds need not reach everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.sim.coverage.exempt import EXEMPT, SELDOM
from tests.sim.coverage.groups import GROUPS, Group, expected

ENOUGH = 300
WIDTH = 46


@dataclass(frozen=True, slots=True)
class Table:
    """`reached`: counts of all expected rows. `seldom`: rows that are not required. `beside`: other counts."""

    seeds: int
    reached: Mapping[str, int]
    missing: Mapping[str, Group]
    exempt: Mapping[str, str]
    seldom: Mapping[str, str]
    wrong: Mapping[str, str]
    beside: Mapping[str, int]
    whole: bool

    @property
    def failed(self) -> bool:
        return bool(self.wrong) or (self.whole and bool(self.missing))

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": len(self.reached) + len(self.exempt), "reached": dict(self.reached), "whole": self.whole,
            "missing": {name: group.how for name, group in self.missing.items()}, "exempt": dict(self.exempt),
            "seldom": dict(self.seldom),
            "wrong": dict(self.wrong), "beside": dict(self.beside),
        }  # fmt: skip


def table_of(
    counts: Mapping[str, int],
    seeds: int,
    *,
    whole: bool,
    rows: Mapping[str, Group] | None = None,
    exempt: Mapping[str, str] | None = None,
    seldom: Mapping[str, str] | None = None,
) -> Table:
    """`whole`: all scenarios were run equally often."""
    wanted = expected() if rows is None else rows
    free = EXEMPT if exempt is None else exempt
    rare = SELDOM if seldom is None else seldom
    groups = {group.name for group in wanted.values()}
    wrong = {name: "exempt, and reached: take it off the list" for name in free if counts.get(name)}
    unknown = [name for name in (*free, *rare) if name not in wanted]
    wrong |= dict.fromkeys(unknown, "exempt or seldom, and there is no such row: take it off the list")
    for name in counts:
        if name not in wanted and name.partition(": ")[0] in groups:
            wrong[name] = "reached, and not known: write it down in groups.py, or find out why it happens"
    reached = {name: counts.get(name, 0) for name in wanted if name not in free}
    return Table(
        seeds=seeds,
        reached=reached,
        missing={name: wanted[name] for name, times in reached.items() if not times and name not in rare},
        exempt={name: why for name, why in free.items() if name in wanted},
        seldom={name: why for name, why in rare.items() if not counts.get(name)},
        wrong=dict(sorted(wrong.items())),
        beside={name: counts[name] for name in sorted(counts) if name not in wanted and name not in wrong},
        whole=whole and seeds >= ENOUGH,
    )


def shown(table: Table) -> str:
    """As text: the rows by their groups, then the missing ones."""
    lines = ["reached, times:"]
    for group in GROUPS:
        rows = {name: times for name, times in table.reached.items() if name.startswith(f"{group.name}: ")}
        lines += [f"  {group.name}"] if rows else []
        lines += [f"{times:11,}  {name.partition(': ')[2]}" for name, times in rows.items()]
    lines += ["  beside these"] if table.beside else []
    lines += [f"{times:11,}  {name}" for name, times in table.beside.items()]
    lines += [f"    seldom  {name:{WIDTH}}  {why}" for name, why in table.seldom.items()]
    lines += [f"    exempt  {name:{WIDTH}}  {why}" for name, why in table.exempt.items()]
    return "\n".join([*lines, "", *verdict(table)])


def verdict(table: Table) -> list[str]:
    """The number of missing rows; if none may be missing, which they are and how to reach them."""
    lines = [f"wrong: {name}: {why}" for name, why in table.wrong.items()]
    if table.whole:
        lines += [f"never reached: {name:{WIDTH}}  how: {group.how}" for name, group in table.missing.items()]
    there, missing = len(table.reached) - len(table.seldom), len(table.missing)
    lines.append(f"coverage: {there - missing} of {there} rows reached, {len(table.exempt)} exempt")
    lines[-1] += f", {len(table.seldom)} too seldom to be demanded"
    if missing and not table.whole:
        lines[-1] += f"; {ENOUGH} seeds of all scenarios are to reach every row"
    return lines
