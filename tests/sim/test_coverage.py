"""Coverage: rows derived from the product's types, counts that add up, runs that fail for unreached rows.

Issue 5: "how often each fault, state, transition and decision row was reached. A row that is never reached is a failure
of the run."
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from dataclasses import dataclass

import pytest

import palisade.catalog.procedures
import palisade.fencing.messages
import palisade.raftgroup.role
import palisade.topology.join_state
import palisade.topology.swim.record
import tests.sim.faults
from palisade.recovery.decision import RefusalReason
from tests.sim.__main__ import Report, parsed
from tests.sim.coverage import groups
from tests.sim.coverage.exempt import EXEMPT, SELDOM
from tests.sim.coverage.groups import GROUPS, Group, expected
from tests.sim.coverage.naming import name_of, names_of
from tests.sim.coverage.table import ENOUGH, shown, table_of, verdict
from tests.sim.faults import Fault, Kind
from tests.sim.foreign import OF_FOLLOWERS, WAYS
from tests.sim.guided import ON_ITS_WAY
from tests.sim.run import Outcome, run_seed
from tests.sim.world import Settings


class Why(enum.Enum):
    TOO_OLD = "it is too old"
    LOST = "it is lost"


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: Why
    text: str = ""


@dataclass(frozen=True, slots=True)
class TakeAll:
    count: int = 0


@dataclass(frozen=True, slots=True)
class Extend:
    truncates: bool


def test_names_of_types_are_the_names_of_their_answers() -> None:
    """One rule for expected and for counted rows."""
    kinds = names_of(Refuse | TakeAll | Extend | None, Why)
    assert kinds == [
        "refuse too-old", "refuse lost", "take-all", "extend", "extend truncates", "none", "too-old", "lost",
    ]  # fmt: skip
    answers = (Refuse(Why.TOO_OLD), Refuse(Why.LOST), TakeAll(3), Extend(False), Extend(True), None, *Why)
    assert list(map(name_of, answers)) == kinds


def test_narrow_type_has_the_rows_that_it_can_have() -> None:
    assert names_of(Refuse, narrow={Refuse: (Why.LOST,)}) == ["refuse lost"]


def test_new_fault_or_reason_is_a_new_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is listed twice: a member that is added to an enum is expected from then on."""
    more = enum.Enum("Kind", {**{kind.name: kind.value for kind in tests.sim.faults.Kind}, "SUNSPOTS": "sunspots"})
    why = enum.Enum(
        "State", {**{each.name: each.value for each in palisade.fencing.messages.HolderPhase}, "HALF_OPEN": "half"}
    )
    assert "fault: sunspots" not in expected()
    monkeypatch.setattr(tests.sim.faults, "Kind", more)
    monkeypatch.setattr(palisade.fencing.messages, "HolderPhase", why)
    assert {"fault: sunspots", "holder state: half-open"} <= expected().keys()


@pytest.mark.parametrize(
    ("table", "states"),
    [
        (groups.holder_changes, palisade.fencing.messages.HolderPhase),
        (groups.role_changes, palisade.raftgroup.role.RaftRole),
        (groups.life_changes, palisade.topology.join_state.JoinPhase),
        (groups.swim_changes, palisade.topology.swim.record.SwimState),
        (lambda: palisade.catalog.procedures.NEXT, palisade.catalog.procedures.ProcedureState),
    ],
)
def test_table_of_changes_knows_every_state(table: groups.Table, states: type[enum.Enum]) -> None:
    """A new state that is not in the table is detected here; a transition that is not in it, by the first run."""
    assert set(table()) == set(states)


def test_each_refusal_of_a_recovery_is_a_row() -> None:
    rows = expected()
    for reason in RefusalReason:
        assert f"recovery decision: refuse {reason.value}" in rows


def test_names_of_groups_and_rows_are_not_used_twice() -> None:
    assert len({group.name for group in GROUPS}) == len(GROUPS)
    for group in GROUPS:
        rows = list(group.rows())
        assert len(set(rows)) == len(rows), group.name


# The table

MADE = Group("door", lambda: ("open", "shut", "ajar"), "push it")
ROWS = {f"door: {name}": MADE for name in MADE.rows()}


def test_row_that_was_never_reached_fails_a_run_of_all_scenarios() -> None:
    counts = {"door: open": 3, "door: ajar": 1}
    table = table_of(counts, ENOUGH, whole=True, rows=ROWS, exempt={}, seldom={})
    assert table.failed
    assert list(table.missing) == ["door: shut"]
    assert any("door: shut" in line and "push it" in line for line in verdict(table))


@pytest.mark.parametrize(("seeds", "whole"), [(ENOUGH - 1, True), (ENOUGH, False)])
def test_fewer_seeds_or_one_scenario_only_report_missing_rows(seeds: int, whole: bool) -> None:
    table = table_of({}, seeds, whole=whole, rows=ROWS, exempt={}, seldom={})
    assert not table.failed
    assert list(table.missing) == list(ROWS)
    assert f"{ENOUGH} seeds of all scenarios are to reach every row" in verdict(table)[-1]


def test_exempt_row_is_not_missed_and_must_not_be_reached() -> None:
    """The list must stay current: a change that makes a row possible removes it from the list."""
    exempt = {"door: shut": "it has no hinges"}
    counts = {"door: open": 3, "door: ajar": 1}
    assert not table_of(counts, ENOUGH, whole=True, rows=ROWS, exempt=exempt, seldom={}).failed
    reached = table_of(counts | {"door: shut": 1}, 1, whole=False, rows=ROWS, exempt=exempt, seldom={})
    assert reached.failed
    assert list(reached.wrong) == ["door: shut"]


def test_unknown_exempt_row_is_an_error() -> None:
    table = table_of({}, 1, whole=False, rows=ROWS, exempt={"door: gone": "there was one"}, seldom={})
    assert list(table.wrong) == ["door: gone"]
    assert table.failed


@pytest.mark.parametrize("times", [0, 2])
def test_rare_row_is_neither_required_nor_wrong(times: int) -> None:
    counts = {"door: open": 3, "door: ajar": 1, "door: shut": times}
    table = table_of(counts, ENOUGH, whole=True, rows=ROWS, exempt={}, seldom={"door: shut": "its hinges stick"})
    assert not table.failed
    assert list(table.seldom) == ([] if times else ["door: shut"])


def test_unknown_row_of_a_group_is_an_error_and_ungrouped_rows_are_shown() -> None:
    """A transition that is not listed, however few seeds reach it."""
    table = table_of({"door: open -> gone": 1, "weather: rain": 2}, 1, whole=False, rows=ROWS, exempt={}, seldom={})
    assert list(table.wrong) == ["door: open -> gone"]
    assert dict(table.beside) == {"weather: rain": 2}
    assert table.failed


def test_every_exemption_is_of_a_row_and_has_a_reason() -> None:
    assert {*EXEMPT, *SELDOM} <= expected().keys()
    assert not EXEMPT.keys() & SELDOM.keys()
    assert all(len(why) > 20 for why in EXEMPT.values())


# Runs

Counts = dict[str, int]


def report_of(outcomes: list[Counts], *arguments: str) -> Report:
    report = Report(parsed(["--json", *arguments]))
    for seed, counts in enumerate(outcomes, 1):
        report.add(Outcome(seed, "many", (), coverage=counts))
    return report


def test_counts_of_seeds_and_of_workers_add_up_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    one, other, third = {"fault: crash": 2, "fault: cut": 1}, {"fault: crash": 1}, {"fault: storm": 5}
    forwards, backwards = (
        report_of(each, "--count", "3").coverage for each in ([one, other, third], [third, other, one])
    )
    assert forwards == backwards == Counter({"fault: crash": 3, "fault: cut": 1, "fault: storm": 5})


def everything() -> Counts:
    return dict.fromkeys(expected().keys() - EXEMPT.keys(), 1)


def test_run_of_enough_seeds_ends_with_0_when_everything_was_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_of([everything()] * ENOUGH, "--count", str(ENOUGH)).end() == 0
    assert '"missing": {}' in capsys.readouterr().out


def test_run_of_enough_seeds_ends_with_1_when_a_row_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    counts = everything()
    del counts["raft role: leader"]
    assert report_of([counts] * ENOUGH, "--count", str(ENOUGH)).end() == 1
    assert '"missing": {"raft role: leader"' in capsys.readouterr().out
    assert report_of([counts] * (ENOUGH - 1), "--count", str(ENOUGH - 1)).end() == 0


def test_run_of_one_scenario_need_not_reach_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_of([{}] * ENOUGH, "--count", str(ENOUGH), "--scenario", "calm").end() == 0


def test_real_run_reaches_only_known_rows() -> None:
    """And the same when it is run again: counting changes nothing, and is removed after it."""
    first, again = run_seed(5, "strange"), run_seed(5, "strange")
    assert not first.violation, first.violation
    assert (first.digest, first.coverage) == (again.digest, again.coverage)
    table = table_of(first.coverage, 1, whole=False)
    assert not table.wrong
    assert sum(map(bool, table.reached.values())) > 100
    assert "coverage: " in shown(table)


def test_foreign_vault_is_refused_with_its_reason() -> None:
    """R7, R8, M6, on members and on a follower, which is refused when it joins with another cluster's."""
    places = zip([*WAYS, RefusalReason.FOREIGN_CLUSTER], itertools.cycle(("n2", "f1", "n3", "f1")), strict=False)
    plan = tuple(
        Fault(1.0 + 2.6 * number, Kind.FOREIGN_VAULT, name, "n1", 0.1, amount_of(reason, name))
        for number, (reason, name) in enumerate(places)
    )
    outcome = run_seed(3, "calm", plan, Settings())
    assert not outcome.violation, outcome.violation
    refused = {reason for reason in RefusalReason if outcome.coverage.get(f"recovery decision: refuse {reason.value}")}
    assert refused == {*WAYS}, outcome.coverage
    assert outcome.coverage["life: rejected"] == 1


def test_vault_diverged_from_a_compacted_past_takes_a_snapshot() -> None:
    """Its digest matches no history until the snapshot is complete (strange 102053)."""
    plan = (
        Fault(4.0, Kind.FOREIGN_VAULT, "f1", "n1", 3.0, amount_of(RefusalReason.DIVERGED, "f1")),
        *(Fault(at_s, Kind.COMPACT, "n1", "n2") for at_s in (5.0, 6.0)),
    )
    outcome = run_seed(3, "calm", plan, Settings())
    assert not outcome.violation, outcome.violation
    assert outcome.coverage.get("recovery decision: snapshot compacted")


def amount_of(reason: RefusalReason, name: str) -> float:
    ways = OF_FOLLOWERS if name.startswith("f") else WAYS
    return (ways.index(reason) + 0.5) / len(ways)


def test_guided_faults_hit_their_moment() -> None:
    """By chance, one run in a hundred reaches these rows."""
    plan = (
        Fault(1.0, Kind.STOP_SUSPECTED, "n2", "n1", 0.5, 0.4),
        Fault(8.0, Kind.DROPPED_IN_RECOVERY, "n3", "n1", 0.5, 0.5),
        *(Fault(at_s, Kind.PAUSE_BEFORE_GRANT, "f1", "n1", 0.5, 0.5) for at_s in (4.0, 9.0, 14.0)),
    )
    outcome = run_seed(3, "calm", plan, Settings())
    assert not outcome.violation, outcome.violation
    rows = (
        "swim change: suspect -> left",
        "life change: finishing -> joining",
        "topology verdict: reject-join not-validated",
        "holder is offered a grant: run-out",
    )
    assert not [row for row in rows if not outcome.coverage.get(row)]


def test_nodes_are_stopped_in_every_phase() -> None:
    """scenarios.md: "Stop during recovery: clean, no hang"."""
    plan = tuple(
        Fault(1.0 + 1.5 * number, Kind.STOP_IN_START, ("n2", "f1")[number % 2], "n1", 0.2, (number // 2 + 0.5) / 4)
        for number in range(8)
    )
    outcome = run_seed(3, "calm", plan, Settings())
    assert not outcome.violation, outcome.violation
    assert not [phase for phase in ON_ITS_WAY if not outcome.coverage.get(f"stopped while: {phase.value}")]


def test_node_considered_dead_may_still_leave() -> None:
    outcome = run_seed(3, "calm", (Fault(1.0, Kind.STOP_SUSPECTED, "n2", "n1", 0.5, 0.6),), Settings())
    assert not outcome.violation, outcome.violation
    assert outcome.coverage.get("swim change: dead -> left")
