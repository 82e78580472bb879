"""palisade region and palisade fencing, as they are typed and as programs read them (issue 4: regions, "Visible")."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from palisade.cli.main import main
from palisade.client import Client
from palisade.service.status import fenced_of, refusals_of
from tests.support.cli_node import CliNode, cli_node

Run = Callable[..., Result]

LEASE: dict[str, Any] = {
    "state": "active", "serves": True, "why_not": None, "incarnation": 2, "term": 7, "lease_age_ms": 286,
    "lease_left_ms": 2714, "released": 5536, "staged": 5536, "applied": 5530, "pending": 0, "listener_failure": None,
    "fenced_s": 1.5,
}  # fmt: skip
HOLDER: dict[str, Any] = {
    "node": "n2", "incarnation": 3, "vault": "v", "fences": True, "lease_ms": 3000, "proceed_ms": 3310,
    "leaving": False, "staged": 5530, "behind": 6, "heard_ms": 312, "granted_ms": 312, "promised": False,
    "reported_state": "recovering", "said": "recovering", "until_ms": 2998,
}  # fmt: skip
WHY = "n2 has not acknowledged revision 5537, and may serve for another 3.0 s"
WAIT = {
    "first": 5537, "last": 5538, "waited_ms": 40, "verdict": "wait", "until_ms": 2998,
    "waits_for": [{"node": "n2", "reason": WHY, "until_ms": 2998}],
}  # fmt: skip
VIEW: dict[str, Any] = {
    "node": "n1",
    "lease": LEASE,
    "link": {"to": "", "trouble": None},
    "timing": {"fence_ms": 3000, "renew_ms": 600, "proceed_ms": 3310},
    "member": None,
    "leader": {"term": 7, "latest": 5538, "released": 5536, "holders": [HOLDER], "waits": [WAIT], "waiting": 1},
}


@pytest.fixture
def shown() -> dict[str, Any]:
    return dict(VIEW)


@pytest.fixture
def node(shown: dict[str, Any]) -> Iterator[CliNode]:
    with cli_node(deadline_s=2.0, fencing_view=lambda: shown) as node:
        yield node


@pytest.fixture
def run(node: CliNode) -> Run:
    def invoke(*arguments: str, exit_code: int = 0) -> Result:
        found = CliRunner().invoke(main, list(arguments), env={"PALISADE_ENDPOINTS": node.endpoint})
        assert found.exit_code == exit_code, (found.output, found.exception)
        return found

    return invoke


def test_second_region_of_one_prefix_is_refused_with_the_prefix_as_text(run: Run) -> None:
    run("region", "set", "first", "/twice/")
    refused = run("region", "set", "second", "/twice/", exit_code=1)
    assert "region first already has the prefix /twice/: change or delete it" in refused.stderr
    run("region", "delete", "first")


def test_region_is_created_listed_and_deleted(run: Run) -> None:
    assert "strict, deny" in run("region", "set", "config", "/config/", "--policy", "deny").stdout
    rows = [line.split("\t") for line in run("region", "list").stdout.splitlines()]
    assert ["config", "/config/", "strict", "deny", "-", "no"] in rows
    assert ["palisade", "palisade/", "strict", "fail_closed", "-", "yes"] in rows
    (config,) = [
        each for each in json.loads(run("region", "list", "--json").stdout)["regions"] if each["name"] == "config"
    ]
    assert (config["prefix"], config["mode"], config["policy"]) == ("/config/", "strict", "deny")
    assert "region config: all keys are strict" in run("region", "set", "config", "").stdout
    assert "region config: prefix '' (all keys); revision" in run("region", "change", "config", "--prefix", "").stdout
    run("region", "delete", "config")
    assert "config\t" not in run("region", "list").stdout
    run("region", "delete", "config", exit_code=1)
    run("region", "set", "palisade", "palisade/", "--mode", "eventual", exit_code=1)


@pytest.mark.parametrize("gone", ["said", "reported_state"])
def test_fencing_lists_the_state_that_a_node_of_another_version_reported(
    shown: dict[str, Any], run: Run, gone: str
) -> None:
    """`said` is the old name; version 0.3 omits it (docs/vocabulary.md)."""
    holder = {name: value for name, value in HOLDER.items() if name != gone}
    shown["leader"] = {**VIEW["leader"], "holders": [holder]}
    assert run("fencing").stdout.splitlines()[2].split("\t")[6] == "recovering"


def test_fencing_lists_holders_and_waiting_changes(run: Run) -> None:
    own, header, holder, wait = run("fencing").stdout.splitlines()
    assert own.startswith("n1 is active, its lease is 286 ms old and ends in 2714 ms; RR 5,536, LV 5,530, term 7")
    assert own.endswith("incarnation 2")
    assert header.startswith("holder\tincarnation\tstaged")
    assert holder.split("\t") == ["n2", "3", "5,530", "6", "312 ms ago", "2998 ms", "recovering", "holds leases"]
    assert wait == f"revisions 5537 to 5538 have waited 40 ms: {WHY}"
    assert json.loads(run("fencing", "--json").stdout) == VIEW


def test_one_waiting_revision_is_named_once(run: Run, shown: dict[str, Any]) -> None:
    """It was "revisions 5538 to 5538"."""
    shown["leader"] = {**VIEW["leader"], "waits": [{**WAIT, "first": 5538}]}
    assert run("fencing").stdout.splitlines()[-1] == f"revision 5538 has waited 40 ms: {WHY}"


def test_changes_from_before_an_election_have_no_first_revision(run: Run, shown: dict[str, Any]) -> None:
    """Issue 16: "revisions 1 to 5538 have waited", while RR was 5536: a new leader does not know RR."""
    shown["leader"] = {**VIEW["leader"], "waits": [{**WAIT, "first": 1}]}
    assert run("fencing").stdout.splitlines()[-1] == f"revisions up to 5538 have waited 40 ms: {WHY}"


@pytest.mark.parametrize(
    ("waits", "line"),
    [
        ([], "no change waits for its release"),
        ([{**WAIT, "waited_ms": 4, "verdict": "proceed", "waits_for": []}], "no change waits for its release"),
        (
            [{**WAIT, "waited_ms": 1_500, "verdict": "proceed", "waits_for": []}],
            "revisions 5537 to 5538 have waited 1500 ms: for no node any more",
        ),
    ],
)
def test_fencing_states_that_nothing_waits(
    waits: list[dict[str, Any]], line: str, run: Run, shown: dict[str, Any]
) -> None:
    """On a healthy cluster it was "revision 5538 has waited 0 ms: for no node any more"."""
    shown["leader"] = {**VIEW["leader"], "waits": waits}
    assert run("fencing").stdout.splitlines()[-1] == line


def test_fencing_without_a_leader_says_whose_view_it_is(run: Run, shown: dict[str, Any]) -> None:
    shown.update(leader=None)
    assert "no leader is known: this is the view of the node that answered" in run("fencing").stderr


@pytest.mark.parametrize("leader", [True, False])
def test_topology_without_a_leader_says_whose_view_it_is(
    run: Run, monkeypatch: pytest.MonkeyPatch, leader: bool
) -> None:
    """Frozen nodes are active in the last state that this node received; only `fencing` and `member list` had the
    note."""

    async def topology(_: Client) -> dict[str, Any]:
        return {"physical": [], "logical": []}

    async def members(_: Client) -> list[dict[str, Any]]:
        return [{"id": "n1", "leader": leader}]

    monkeypatch.setattr(Client, "topology", topology)
    monkeypatch.setattr(Client, "members", members)
    text = "no leader is known: this is the view of the node that answered"
    assert (text in run("topology").stderr) == (not leader)
    assert text not in run("topology", "--json").stderr


def test_fenced_node_gives_the_reason(run: Run, shown: dict[str, Any]) -> None:
    lapsed = {**LEASE, "state": "fenced", "serves": False, "why_not": "its lease has run out", "lease_age_ms": None}
    shown.update(lease=lapsed, leader=None)
    (own,) = run("fencing").stdout.splitlines()
    assert own.startswith("n1 is fenced: its lease has run out; RR")


def test_status_explains_that_a_ready_node_does_not_serve_its_vault(run: Run, shown: dict[str, Any]) -> None:
    """`ready` was `yes`, and only the columns `fence` and `LV` differed."""
    assert "serves no reads" not in run("status").stderr
    shown["lease"] = {**LEASE, "state": "recovering", "serves": False, "why_not": "its lease has run out"}
    line = r"n1 is ready, but serves no reads from its vault: fence recovering \(its lease has run out\); LV 5"
    assert re.search(rf"^{line},530, LM \d+$", run("status").stderr, re.M)
    assert run("status", "--json").stderr == ""


def test_status_has_one_line_for_nodes_with_the_same_reason() -> None:
    """After recover-quorum, the same sentence stood three times."""
    fencing = {"state": "recovering", "serves": False, "why_not": "it has no lease yet"}
    rows = [
        {"id": node, "ready": True, "revision": 5, "fencing": {**fencing, "applied": lv}, "refused_by": refused_by}
        for node, lv, refused_by in (("n1", 4, {"n2": "older", "n3": "older"}), ("n2", 4, {}), ("n3", 3, {"n1": "old"}))
    ]
    why = "fence recovering (it has no lease yet); LV"
    assert fenced_of(rows) == [
        f"n1, n2 are ready, but serve no reads from their vaults: {why} 4, LM 5",
        f"n3 is ready, but serves no reads from its vault: {why} 3, LM 5",
    ]
    assert refusals_of(rows) == ["n2, n3 refuse n1: older", "n1 refuses n3: old"]


def test_status_has_fencing_columns_and_waits(run: Run) -> None:
    found = run("status")
    cells = found.stdout.splitlines()[1].split("\t")
    assert cells[9:14] == ["2", "active", "0.3 s", "5,536", "5,530"]
    assert f"revisions 5537 to 5538 have waited 40 ms: {WHY}" in found.output
    (row,) = json.loads(run("status", "--json").stdout)["nodes"]
    assert row["fencing"]["waits"] == [WAIT]
    assert (row["fencing"]["incarnation"], row["fencing"]["lease_age_ms"], row["fencing"]["applied"]) == (2, 286, 5530)


def test_csv_without_a_leader_has_the_header(run: Run, shown: dict[str, Any]) -> None:
    """It printed nothing, which programs that read the header cannot read."""
    header, *rows = run("fencing", "-o", "csv").stdout.splitlines()
    assert (header.split(",")[0], len(rows)) == ("holder", len(VIEW["leader"]["holders"]))
    shown["leader"] = None
    assert run("fencing", "-o", "csv").stdout.splitlines() == [header]
