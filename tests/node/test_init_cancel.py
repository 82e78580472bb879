"""A cancelled initialization stays cancelled, whatever coordinators and commands still run (R9)."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.base.http_request import Answer, HttpRequests, NoAnswer
from palisade.cli.main import main
from palisade.node import uninitialized
from palisade.node.config_sources import load_node_config
from palisade.node.data_dir import claim_data_dir, keep_participant
from palisade.node.uninitialized import UninitializedNode, _Coordinator
from palisade.topology.initialization import (
    CancelOutcome,
    InitPlan,
    InitRefused,
    InitState,
    Participant,
    outcome_of_cancel,
)
from palisade.topology.physical import PhysicalTopology
from palisade.topology.swim.record import Record, SwimState
from tests.support.processes import free_port

init_module: Any = importlib.import_module("palisade.cli.init")
NAMES = ("n1", "n2", "n3")
PLAN = InitPlan("c1", tuple(f"n{number}=127.0.0.1:75{number}:74{number}:76{number}" for number in (1, 2, 3)))
HTTP = {f"127.0.0.1:74{number}": f"n{number}" for number in (1, 2, 3)}
IDLE, PREPARED = Participant(), Participant(InitState.PREPARED, PLAN)


class Nodes:
    """The participants. `before` is called before each request that a node handles, or does not answer."""

    def __init__(self) -> None:
        self.states = dict.fromkeys(NAMES, IDLE)
        self.silent: set[str] = set()
        self.before: Callable[[str, str], object] = lambda _name, _verb: None

    async def json(self, address: str, path: str, method: str = "GET", body: Any = None) -> Answer:
        name, verb = HTTP[address], path.rpartition("/")[2]
        self.before(name, verb)
        if name in self.silent:
            raise NoAnswer(address, "timed out")
        state = self.states[name]
        if verb == "prepare":
            self.states[name] = state.prepare(InitPlan.from_json(body), PLAN.members[NAMES.index(name)])
        elif verb == "commit":
            self.states[name] = state.commit(PLAN.id)
        elif verb == "cancel":
            self.states[name] = state.cancel(PLAN.id)
            outcome = outcome_of_cancel(state, self.states[name])
            return Answer(200, {**self.states[name].to_json(), "outcome": outcome}, {})
        return Answer(200, self.states[name].to_json(), {})

    def cancel(self) -> None:
        """As `palisade init --cancel` at another node: at all that answer."""
        for name in set(NAMES) - self.silent:
            self.states[name] = self.states[name].cancel(PLAN.id)

    async def __aenter__(self) -> Nodes:
        return self

    async def __aexit__(self, *_: object) -> None: ...


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


Post = Callable[..., Awaitable[Answer]]


@pytest.fixture
def kept() -> Participant:
    """The state of n1 on its disk: it has prepared the plan."""
    return PREPARED


@pytest.fixture
async def post(nodes: Nodes, kept: Participant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Post]:
    """Sends a body to a path below /v1 of n1, which reaches `nodes` as a coordinator."""
    monkeypatch.setattr(uninitialized, "HttpRequests", lambda *_, **__: nodes)
    monkeypatch.setattr(uninitialized, "COORDINATE_S", 0.4)
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("http", "peer", "stream", "swim")}
    config = load_node_config({"id": "n1", "cluster": "c1", "data-dir": str(tmp_path), **ports}, environ={})
    claim_data_dir(tmp_path, cluster="c1", node="n1")
    keep_participant(tmp_path, kept)
    node = UninitializedNode(config)
    async with HttpRequests() as requests:
        try:
            await node.start()
            yield lambda path, body: requests.json(ports["http"], f"/v1/{path}", "POST", body)
        finally:
            await node.stop()


def announce(patch: pytest.MonkeyPatch, **states: SwimState) -> None:
    """The members of the plan in these states are the physical topology of n1."""
    members = dict(zip(NAMES, PLAN.members, strict=True))
    seen = [
        Record(name, "127.0.0.1:1", "i", state=state, tags=(("member", members[name]),))
        for name, state in states.items()
    ]
    patch.setattr(PhysicalTopology, "records", lambda _: seen)


async def test_cancel_between_two_requests_to_prepare_leaves_no_node_prepared(nodes: Nodes) -> None:
    """n3 did not answer for 3 s, in which n2 was cancelled; then n1 was prepared, and refused any other plan."""

    def cancel_meanwhile(name: str, verb: str) -> None:
        if (name, verb) == ("n3", "prepare"):
            nodes.silent.add("n3")
            nodes.cancel()

    nodes.before = cancel_meanwhile
    with pytest.raises(InitRefused, match="cancelled at n2"):
        await _Coordinator(PLAN, "n1", nodes, set()).run()  # type: ignore[arg-type]
    assert nodes.states == dict.fromkeys(NAMES, IDLE)


async def test_cancel_returns_the_outcome_at_each_node(nodes: Nodes) -> None:
    """A node that did not answer stayed prepared, and the command printed "cancelled" (issue 16)."""
    nodes.states["n1"] = nodes.states["n3"] = PREPARED
    nodes.silent.add("n3")
    coordinator = _Coordinator(PLAN, "n1", nodes, set())  # type: ignore[arg-type]
    outcomes = await coordinator.cancel()
    assert outcomes == {
        "n1": CancelOutcome.CANCELLED,
        "n2": CancelOutcome.NOT_PREPARED,
        "n3": CancelOutcome.NO_ANSWER,
    }
    nodes.silent.clear()
    nodes.states["n2"] = Participant(InitState.PREPARED, InitPlan("c1", PLAN.members[:2]))
    assert await coordinator.cancel() == {
        "n1": CancelOutcome.NOT_PREPARED,
        "n2": CancelOutcome.OTHER_PLAN,
        "n3": CancelOutcome.CANCELLED,
    }


async def test_participant_of_an_earlier_version_has_cancelled(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its response has no `outcome`, which was a KeyError."""
    nodes.states["n2"] = Participant(InitState.PREPARED, InitPlan("c1", PLAN.members[:2]))
    json = nodes.json

    async def earlier(address: str, path: str, method: str = "GET", body: Any = None) -> Answer:
        answer = await json(address, path, method, body)
        return Answer(answer.status, {name: answer.content[name] for name in ("state", "plan")}, {})

    monkeypatch.setattr(nodes, "json", earlier)
    outcomes = await _Coordinator(PLAN, "n1", nodes, set()).cancel()  # type: ignore[arg-type]
    assert outcomes == {
        "n1": CancelOutcome.CANCELLED,
        "n2": CancelOutcome.OTHER_PLAN,
        "n3": CancelOutcome.CANCELLED,
    }


async def test_repeated_cancel_has_the_result_at_each_node_while_one_is_silent(
    nodes: Nodes, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused (`init-refused`, n3 is not visible), although the message of the first one said to repeat it."""
    announce(monkeypatch)
    nodes.states["n1"], nodes.silent = PREPARED, {"n3"}
    first = (await post("cluster/init", {"members": NAMES, "cancel": True})).content
    assert (await post("init/cancel", PLAN.to_json())).content["outcome"] == "cancelled"
    second = (await post("cluster/init", {"members": NAMES, "cancel": True})).content
    assert first["nodes"] == {"n1": "cancelled", "n2": "not-prepared", "n3": "no-answer"}
    assert second["nodes"] == {"n1": "not-prepared", "n2": "not-prepared", "n3": "no-answer"}
    assert first["cancelled"] is second["cancelled"] is False


@pytest.mark.parametrize("kept", [IDLE])
async def test_cancel_reaches_nodes_that_are_silent_by_what_they_announced(
    nodes: Nodes, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n1 has neither prepared the plan nor cancelled it before."""
    announce(monkeypatch, n1=SwimState.ALIVE, n2=SwimState.DEAD, n3=SwimState.LEFT)
    nodes.states = dict.fromkeys(NAMES, PREPARED)
    refused = await post("cluster/init", {"members": NAMES})
    assert refused.status == 503
    assert "n1 does not see n2, n3 among the nodes that wait to be initialized: correct the names" in refused.detail
    assert "GET /" not in refused.detail
    found = await post("cluster/init", {"members": NAMES, "cancel": True})
    assert found.content["nodes"] == dict.fromkeys(NAMES, "cancelled")
    announce(monkeypatch, n1=SwimState.ALIVE, n2=SwimState.DEAD)
    refused = await post("cluster/init", {"members": NAMES, "cancel": True})
    assert refused.status == 409
    assert "n3 are not known here, so nothing was cancelled: repeat the command when" in refused.detail


async def test_repeated_request_of_a_command_does_not_undo_a_cancel(nodes: Nodes, post: Post) -> None:
    """The coordinator ended after 15 s, the command repeated its request, and the next coordinator began anew."""

    async def init(attempt: str) -> int:
        return (await post("cluster/init", {"members": NAMES, "attempt": attempt})).status

    nodes.silent = {"n3"}
    assert await init("first") == 503
    assert nodes.states == {"n1": PREPARED, "n2": PREPARED, "n3": IDLE}
    nodes.cancel()
    nodes.silent = set()
    assert await init("first") == 409
    assert nodes.states == dict.fromkeys(NAMES, IDLE)
    assert await init("second") == 200
    assert {state.state for state in nodes.states.values()} == {InitState.COMMITTED}


@pytest.mark.parametrize("body", [{"timeout_ms": 5000}, {"timeout_ms": "soon"}, {"timeout_ms": True}, {}])
async def test_coordinator_names_the_silent_nodes_before_the_sender_stops_waiting(
    body: dict[str, Any], nodes: Nodes, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`palisade init --timeout 4` with a frozen node reported that no node answers at --at."""
    if type(body.get("timeout_ms")) is int:
        monkeypatch.setattr(uninitialized, "COORDINATE_S", 15.0)
        monkeypatch.setattr(uninitialized, "ANSWER_PART", 0.1)
    nodes.silent = {"n3"}
    began = time.monotonic()
    answer = await post("cluster/init", {"members": NAMES, "attempt": "a", **body})
    assert time.monotonic() - began < 5
    assert answer.status == 503
    assert answer.detail.startswith("no answer from n3 at 127.0.0.1:743 (timed out); the cluster of n1, n2, n3 is not")


async def test_command_names_its_attempt_in_each_of_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    async def ask(requests: HttpRequests, at: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        sent.append(body)
        return (503 if len(sent) % 2 else 200), {"code": "", "detail": "", "members": NAMES}

    monkeypatch.setattr(init_module, "ask", ask)
    monkeypatch.setattr(init_module, "AGAIN_S", 0.0)
    for _ in range(2):
        done = await asyncio.to_thread(CliRunner().invoke, main, ["init", *NAMES, "--at", "127.0.0.1:1"])
        assert done.exit_code == 0, done.output
    assert all(0 < body["timeout_ms"] <= 20_000 for body in sent)
    attempts = [body["attempt"] for body in sent]
    assert attempts[0] == attempts[1] != attempts[2] == attempts[3]
