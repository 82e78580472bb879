"""Each recovery case as a named scenario, with real processes and the demo catalog (R12; issue 3, "Shown by" 1)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palisade.catalog.demo.entries import CatalogEntry
from palisade.cli.scenarios import actor
from palisade.cli.scenarios.all import BY_NAME, SCENARIOS
from palisade.cli.scenarios.runner import run
from palisade.cli.scenarios.story import ScenarioEvent
from palisade.client.bulk_load import read_demo
from tests.support.forked_child import ForkedChild
from tests.support.processes import Cluster, FollowerProcess, NodeProcess, palisade, until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def entries() -> list[CatalogEntry]:
    return read_demo().entries


@pytest.mark.parametrize("name", BY_NAME)
async def test_scenario_holds_and_its_report_names_the_right_case(
    name: str, entries: list[CatalogEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are forked; the tests of the command below start them as users do."""
    monkeypatch.setattr(actor, "Child", ForkedChild)
    events: list[ScenarioEvent] = []
    outcome = await run(BY_NAME[name], entries, events.append)
    assert outcome.held, "\n".join(event.text for event in events)
    assert (outcome.report["case"] if outcome.report else None) == BY_NAME[name].case
    assert {check.name for check in outcome.checks} == set(BY_NAME[name].promises())
    assert outcome.steps


@pytest.mark.parametrize(
    ("name", "fault", "missed"),
    [
        ("replay", "always_join", {"case"}),
        ("join", "always_snapshot", {"case", "nothing-moved"}),
        ("paused-past-compaction", "difference_untold", {"none-skipped"}),
        ("crash-in-eviction", "half_left", {"as-undisturbed"}),
        ("segment-server-dies", "missing_in_silence", {"exact-list"}),
        ("activation-older-primary", "older_serves", {"older-waits", "nothing-lost"}),
        ("activation-replica-cut-off", "sequence_stays", {"raises-before-alone", "older-waits", "nothing-lost"}),
    ],
)
async def test_planted_fault_is_seen(
    name: str, fault: str, missed: set[str], entries: list[CatalogEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes run with the planted fault; the scenario reports what does not hold."""

    class Planted(ForkedChild):
        async def start(self) -> None:
            _, _, module, *rest = self.program
            self.program = ["-P", "-m", "tests.support.planted_node", fault, module, *rest]
            await super().start()

    monkeypatch.setattr(actor, "Child", Planted)
    outcome = await run(BY_NAME[name], entries, lambda event: None)
    assert {check.name for check in outcome.checks if not check.held} == missed, outcome.error
    assert not outcome.held


async def test_command_prints_one_object_and_leaves_nothing() -> None:
    code, out, err = await palisade("scenario", "run", "join", "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    assert (found["scenario"], found["held"], found["case"], found["folder"]) == ("join", True, "a", None)
    assert all(check["held"] for check in found["checks"])
    assert found["recovery"]["lv"] == found["recovery"]["lm"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_scenario_that_is_interrupted_leaves_no_process_and_no_folder(number: int, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "palisade.cli", "scenario", "run", "replay", "--events"),
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    lines = [json.loads(await process.stdout.readline()) for _ in range(2)]
    assert [line["event"] for line in lines] == ["scenario", "step"]
    assert node_processes(tmp_path)
    process.send_signal(number)
    assert await process.wait() == 130
    assert list(tmp_path.iterdir()) == []
    await until(lambda: not node_processes(tmp_path), "the end of the nodes")


def node_processes(folder: Path | str) -> list[str]:
    """Processes whose command line names the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and int(entry.name) != os.getpid():
            found.append(line)
    return found


async def test_scenario_is_started_and_followed_over_http(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(1)
    cluster.start()
    await cluster.ready()
    await started_and_followed(cluster["n1"])


async def test_follower_runs_scenarios(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = new_cluster(1)
    cluster.start()
    follower = FollowerProcess(tmp_path, "f1", join=cluster["n1"].http)
    follower.start()
    try:
        await until(follower.ready, "f1 being ready")
        await started_and_followed(follower)
    finally:
        follower.kill()


async def started_and_followed(node: NodeProcess) -> None:
    """The node runs it in a process of its own, one at a time; a running scenario ends when the node stops."""
    started = await node.ask("POST", "/v1/scenarios/join")
    assert started is not None
    assert (started["http_status"], started["state"]) == (202, "running")
    second = await node.ask("POST", "/v1/scenarios/replay")
    assert second is not None
    assert (second["http_status"], second["code"]) == (409, "scenario-runs")

    seen: list[list[str]] = [[]]
    shown: dict[str, Any] | None = None

    async def continues() -> dict[str, Any] | None:
        found = await node.get("/v1/scenarios/join")
        return found if found != shown else None

    while (shown := await until(continues, f"what follows {shown}"))["state"] == "running":
        seen.append(shown["steps"])
    found = shown
    assert (found["state"], found["recovery"]["case"]) == ("held", "a"), found
    assert len(found["steps"]) > 2
    lengths = [len(steps) for steps in seen[1:]]
    assert lengths == sorted(lengths)
    assert {0 < length < len(found["steps"]) for length in lengths} >= {True}, "its steps are seen while it plays"
    assert all(found["steps"][: len(steps)] == steps for steps in seen)
    await node.ask("POST", "/v1/scenarios/replay")
    await until(lambda: node_processes("palisade-replay-"), "the nodes of the scenario")
    assert await node.stop() == 0
    await until(lambda: not node_processes("palisade-replay-"), "the end of the nodes of the scenario")


async def test_list_names_every_scenario_that_the_issue_asks_for() -> None:
    asked = {
        "join", "replay", "snapshot", "overtaken", "busy-writes", "refuse-ahead", "refuse-foreign", "refuse-diverged",
        "refuse-older-history", "standalone", "wiped-disk", "crash-in-eviction", "paused-past-compaction",
        "join-rejected",
    }  # fmt: skip
    code, out, _ = await palisade("scenario", "list", "--json")
    listed = json.loads(out)["scenarios"]
    assert code == 0
    assert asked <= {one["name"] for one in listed}
    assert [one["name"] for one in listed] == [one.name for one in SCENARIOS]
    assert all(one["must_hold"] for one in listed)


async def test_scenario_that_does_not_exist_and_none_at_all_are_wrong_usage() -> None:
    code, _, said = await palisade("scenario", "run", "nonsense")
    assert code == 2
    assert "there is no scenario nonsense" in said
    assert (await palisade("scenario", "run"))[0] == 2
    assert (await palisade("scenario", "run", "join", "--all"))[0] == 2
