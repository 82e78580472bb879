"""Which nodes `palisade segments assign` chooses, and what it reports if it cannot know (issue 17)."""

from __future__ import annotations

import contextlib
import importlib
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.segments.names import Wanted, assignment_key
from palisade.wire.auth_errors import PermissionDenied
from palisade.wire.segment_errors import NotFetched, SegmentError
from tests.support.cli_node import cli_node
from tests.support.segment_names import name

segments_module: Any = importlib.import_module("palisade.cli.segments")


class Topology:
    async def topology(self) -> dict[str, Any]:
        return {"physical": [], "logical": []}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any] | None]:
    """Of each node; None: it does not answer."""
    found: dict[str, dict[str, Any] | None] = {}

    async def ask_all(*_: Any) -> dict[str, dict[str, Any] | None]:
        return found

    monkeypatch.setattr(segments_module, "ask_all", ask_all)
    return found


async def test_segments_are_assigned_to_the_nodes_that_keep_segments(answers: dict[str, Any]) -> None:
    answers |= {"n2": {"keeps": True}, "n1": {"keeps": True}, "n3": {"keeps": False}}
    assert await segments_module.keepers(WithAssignment(), 5.0, {}, set()) == {"n1": True, "n2": True, "n3": False}


@pytest.mark.parametrize(
    ("name", "nodes", "why"),
    [
        ("n1", "n2,n3", "it is not in --nodes"),
        ("n1", None, "it is not in the topology: it is down, or has left"),
        ("n4", None, "it runs without --segments"),
    ],
)
def test_node_that_is_left_out_is_named_with_its_own_cause(name: str, nodes: str | None, why: str) -> None:
    """Three possible causes were given, and the frozen node was in none of them by its name (issue 16)."""
    assert segments_module.why_left_out(name, nodes, {"n2": True, "n4": False}) == why


class WithAssignment(Topology):
    """n3 has an assigned segment."""

    async def range(self, *_: Any, **__: Any) -> Any:
        key = assignment_key("n3", name(1))
        value = Wanted("sha256:" + "0" * 64, 1).to_value()
        return SimpleNamespace(kvs=[SimpleNamespace(key=key, value=value)])


async def test_node_that_does_not_answer_keeps_its_role(answers: dict[str, Any]) -> None:
    """One frozen node made the command fail (exit code 3). n3 has copies, n4 has none."""
    answers |= {"n2": {"keeps": True}, "n3": None, "n4": None}
    unanswered = set[str]()
    found = await segments_module.keepers(WithAssignment(), 5.0, {}, unanswered)
    assert (found, unanswered) == ({"n2": True, "n3": True, "n4": False}, {"n3", "n4"})


async def test_nothing_is_assigned_while_no_node_answers(answers: dict[str, Any]) -> None:
    """All of them are named in one sentence: "n1, n3 does not answer, so it is not known whether it keeps"."""
    answers |= {"n3": None, "n1": None}
    text = "no answer from n1, n3, so it is not known which of the nodes store segments; nothing was assigned"
    with pytest.raises(NotFetched, match=text):
        await segments_module.keepers(WithAssignment(), 5.0, {}, set())


class OfTwo:
    """n1 runs, n2 has stopped and is still in the physical topology."""

    async def topology(self) -> dict[str, Any]:
        return {"physical": [{"id": "n1"}, {"id": "n2"}], "logical": [{"id": "n1", "addresses": {}}]}


@pytest.mark.parametrize(
    ("names", "refusal"),
    [
        (["n1"], None),
        (["n1", "n2"], None),
        (["nosuch", "n1", "n4"], "--nodes: not in the topology: nosuch, n4; nothing was assigned. Nodes .*: n1, n5. "),
        (["n3"], "--nodes: running without --segments: n3; nothing was assigned"),
    ],
)
async def test_node_that_cannot_store_copies_is_refused(
    names: list[str], refusal: str | None, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--nodes nosuch` assigned all segments to a node that did not exist."""
    answers |= {"n1": {"keeps": True}, "n5": {"keeps": True}, "n2": None}
    if names == ["n3"]:
        answers["n3"] = {"keeps": False}
        monkeypatch.setattr(OfTwo, "topology", with_third)
    context = contextlib.nullcontext() if refusal is None else pytest.raises(SegmentError, match=refusal)
    with context:
        await segments_module.check_keepers(OfTwo(), names, 5.0, {})


async def with_third(_: Any) -> dict[str, Any]:
    return {"physical": [{"id": "n3"}], "logical": []}


@pytest.mark.parametrize(("force", "exit_code"), [((), 1), (("--force",), 0)])
def test_segments_are_assigned_to_an_unknown_node_with_force_only(
    force: tuple[str, ...], exit_code: int, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers |= {"n1": {"keeps": True}}
    monkeypatch.setattr("palisade.client.client.Client.topology", OfTwo.topology)
    with cli_node() as node:
        options = ["--nodes", "nosuch", *force, "--endpoints", node.endpoint]
        done = CliRunner().invoke(main, ["segments", "assign", *options])
    assert done.exit_code == exit_code, done.output


@pytest.mark.parametrize("command", ["nodes", "assign"])
def test_command_gives_the_nodes_its_own_deadline(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--timeout 1` waited 3 s for a frozen node (issue 16)."""
    given = list[float]()

    async def ask_all(addresses: Any, deadline_s: float, *_silent: Any) -> dict[str, Any]:
        given.append(deadline_s)
        return {name: {"keeps": True, "expired": 0, "trashed": 0, "local": 0} for name in addresses}

    async def topology(_: Any) -> dict[str, Any]:
        return {"logical": [], "physical": []}

    monkeypatch.setattr(segments_module, "ask_all", ask_all)
    monkeypatch.setattr("palisade.client.client.Client.topology", topology)
    with cli_node() as node:
        CliRunner().invoke(main, ["segments", command, "--timeout", "2.5", "--endpoints", node.endpoint])
    assert given == [2.5]


def test_assignment_to_no_node_has_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "0 segments, 0 copies on 0 nodes; 0 changed" without a hint."""

    async def topology(_: Any) -> dict[str, Any]:
        return {"logical": [], "physical": []}

    monkeypatch.setattr("palisade.client.client.Client.topology", topology)
    with cli_node() as node:
        done = CliRunner().invoke(main, ["segments", "assign", "--endpoints", node.endpoint])
    assert (done.exit_code, done.stdout) == (0, "0 segments, 0 copies on 0 nodes; 0 changed\n")
    assert done.stderr == ("palisade: no node stores segments: start nodes with --segments, and repeat the command\n")


async def test_user_without_the_right_is_refused_and_no_node_is_called_silent() -> None:
    """All nodes were named as silent, with exit code 3, so that a script repeated the command forever."""

    async def refuse(_request: web.Request) -> web.Response:
        problem = {"code": "permission-denied", "detail": "user alice needs read on palisade/segments/", "status": 403}
        return web.json_response(problem, status=403)

    app = web.Application()
    app.add_routes([web.get("/v1/segments/copies", refuse)])
    async with TestServer(app) as server:
        with pytest.raises(PermissionDenied, match="user alice needs read on palisade/segments/"):
            await segments_module.ask_all({"n1": f"127.0.0.1:{server.port}"}, 5.0)


def test_segments_with_more_replicas_than_nodes_are_named_with_their_numbers() -> None:
    one = segments_module.too_few_nodes([("sales/0", 5)], ["n1", "n2"])
    assert one.startswith(
        "1 segment has more replicas than there are nodes to store them (n1, n2), and is assigned to all of these: "
        "sales/0 (5 replicas). Start more nodes with --segments"
    )
    many = segments_module.too_few_nodes([(f"sales/{number}", 5) for number in range(5)], ["n1"])
    assert many.startswith("5 segments have more replicas")
    assert "sales/2 (5 replicas) and 2 more. Start" in many


class OfThree(Topology):
    async def topology(self) -> dict[str, Any]:
        return {"physical": [{"id": "n1"}, {"id": "n2"}, {"id": "n3"}], "logical": []}


@pytest.mark.parametrize(
    ("replicas", "third", "remark"),
    [
        (3, {"keeps": True}, None),
        (3, None, None),
        (3, {"keeps": False}, "3 replicas, but only 2 nodes store segments (n1, n2): there are no more copies"),
        (5, None, "5 replicas, but only 3 nodes store segments (n1, n2, n3): there are"),
    ],
)
async def test_replication_factor_above_the_number_of_nodes_has_a_remark(
    replicas: int, third: dict[str, Any] | None, remark: str | None, answers: dict[str, Any]
) -> None:
    """`segments realtime append --replicas 5` and `set-replicas` accepted it without a word."""
    answers |= {"n1": {"keeps": True}, "n2": {"keeps": True}, "n3": third}
    found = await segments_module.too_few_keepers(OfThree(), replicas, 5.0)
    assert (found or "")[: len(remark or "")] == (remark or "")
    assert (found is None) == (remark is None)
