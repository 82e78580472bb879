"""palisade status ends within its timeout, also if several nodes do not answer (issue 16)."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest

from palisade.cli import waiting
from palisade.cli.session import CliSession, unreachable
from palisade.cli.waiting import nothing_shown

status_module: Any = importlib.import_module("palisade.cli.status")

FROZEN = ("n1:1", "n2:1")
RUNS = "n3:1"


def member(name: str) -> dict[str, Any]:
    return {"id": name, "addresses": {"stream": f"{name}:1", "http": f"{name}:2"}}


class Nodes:
    """n3 runs and names n1, n2 and the follower f1, which are frozen. `known_after_s`: the time for its topology."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, known_after_s: float = 0.0) -> None:
        self._known_after_s = known_after_s
        for each in ("ask", "followers_known_at", "ask_http"):
            monkeypatch.setattr(status_module, each, getattr(self, each))

    async def ask(self, address: str, timeout_s: float, *_: Any) -> Mapping[str, Any] | None:
        if address in FROZEN:
            await asyncio.sleep(timeout_s)
            return None
        return {"member": "n3", "role": "follower", "members": [member(name) for name in ("n1", "n2", "n3")]}

    async def followers_known_at(self, address: str, timeout_s: float) -> dict[str, str]:
        assert address == RUNS
        await asyncio.sleep(min(self._known_after_s, timeout_s))
        return {"f1": "f1:2"} if self._known_after_s < timeout_s else {}

    async def ask_http(self, at: str, _path: str, *, timeout_s: float) -> Any:
        await asyncio.sleep(timeout_s)
        raise status_module.NoAnswer(at, "no answer in time")


@pytest.mark.parametrize("endpoints", [(*FROZEN, RUNS), (RUNS,)])
async def test_members_and_followers_that_do_not_answer_take_one_timeout(
    endpoints: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--timeout 2` took 5.8 s: members, topology and followers were requested one after the other."""
    Nodes(monkeypatch)
    began = time.monotonic()
    rows = await status_module.ask_all(endpoints, 0.4)
    assert time.monotonic() - began < 0.7
    assert [(row["id"], row["role"]) for row in rows] == [("n1", None), ("n2", None), ("n3", "follower"), ("f1", None)]


def answers_at(request: int, reason: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """n3 answers from this request on; before, it has `reason`. Returns the time limit of each request."""
    requests = list[float]()

    async def ask(address: str, given_s: float, _wrong: Any, reasons: dict[str, str]) -> Mapping[str, Any] | None:
        requests.append(given_s)
        if len(requests) >= request:
            return {"member": "n3", "role": "leader", "members": [member("n3")]}
        reasons[address] = reason
        return None

    Nodes(monkeypatch)
    monkeypatch.setattr(status_module, "ask", ask)
    return requests


@pytest.mark.parametrize("reason", ["this node could not read the permissions in time", "no answer in time"])
@pytest.mark.parametrize(("timeout_s", "asked"), [(9.0, 2), (1.0, 1)])
async def test_status_is_repeated_while_a_node_is_late_or_cannot_verify_the_user(
    reason: str, timeout_s: float, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `palisade up` had printed "ready", `palisade status` ended with exit code 3; with the address of a frozen
    node it ended after 2 of its 5 s (issue 16)."""
    requests = answers_at(2, reason, monkeypatch)
    reasons: dict[str, str] = {}
    rows = await status_module.rows_from(CliSession((RUNS,), timeout_s, as_json=False), reasons)
    roles = [row["role"] for row in rows if row["id"] == "n3"]
    assert (len(requests), roles) == (asked, ["leader"] * (asked - 1))
    assert reasons == {RUNS: reason}


@pytest.mark.parametrize(("up_runs", "timeout_s", "asked"), [(True, 60.0, 3), (True, 0.1, 1), (False, 60.0, 1)])
async def test_status_is_repeated_while_a_running_up_is_starting_its_nodes(
    up_runs: bool, timeout_s: float, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`palisade status` failed at once, although docs/cli.md promises that commands wait."""
    requests = answers_at(3, "connection refused", monkeypatch)
    session = CliSession((RUNS,), timeout_s, as_json=False, up_runs=up_runs)
    rows = await status_module.rows_from(session, {})
    roles = [row["role"] for row in rows if row["id"] == "n3"]
    assert (len(requests), roles) == (asked, ["leader"] if asked == 3 else [])


async def test_every_node_that_has_not_answered_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen follower, or a member that only another one had named, made `palisade status` silent for 2.8 s."""
    Nodes(monkeypatch)
    silent: dict[str, float] = {}
    asking = asyncio.ensure_future(status_module.ask_all((RUNS,), 0.4, silent))
    await asyncio.sleep(0.2)
    assert sorted(silent) == ["f1:2", *FROZEN]
    await asking
    assert silent == {}


async def test_notice_names_no_node_that_is_only_slower_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directly after the start of the nodes, healthy ones were named that had been asked a moment before."""
    texts = list[Callable[[], str | None]]()

    @asynccontextmanager
    async def notice(_: CliSession, why: Callable[[], str | None]) -> AsyncIterator[Callable[[], None]]:
        texts.append(why)
        yield nothing_shown

    Nodes(monkeypatch)
    monkeypatch.setattr(CliSession, "notice", notice)
    asking = asyncio.ensure_future(status_module.rows_from(CliSession((RUNS,), 60.0, as_json=False), {}))
    for _ in range(100):
        await asyncio.sleep(0)
    monkeypatch.setattr(waiting, "NOTICE_S", 3600.0)
    assert texts[0]() is None
    monkeypatch.setattr(waiting, "NOTICE_S", 0.0)
    assert texts[0]() == "no answer yet from n1:1, n2:1, f1:2"
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_topology_that_is_not_read_in_time_leaves_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    Nodes(monkeypatch, known_after_s=3600)
    began = time.monotonic()
    rows = await status_module.ask_all((*FROZEN, RUNS), 0.4)
    assert time.monotonic() - began < 0.7
    assert [row["id"] for row in rows] == ["n1", "n2", "n3"]


async def test_error_of_a_node_ends_the_requests_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(address: str, *_: Any) -> Any:
        if address == RUNS:
            raise PermissionError("refused")
        await asyncio.sleep(3600)

    monkeypatch.setattr(status_module, "ask", ask)
    with pytest.raises(PermissionError):
        await status_module.ask_all((*FROZEN, RUNS), 3600.0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(("terminal", "output"), [(True, "table"), (False, "table"), (False, "csv"), (False, "json")])
def test_status_shows_the_reasons_of_its_addresses_once(
    terminal: bool, output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error repeated the reasons of the table above it. With --json its object has them, too."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    session = CliSession(["127.0.0.1:7601"], 1.0, as_json=output == "json", as_csv=output == "csv")
    why = "it could not read the permissions"
    with nullcontext() if output == "json" else pytest.raises(SystemExit):
        status_module.show_addresses(session, {"127.0.0.1:7601": why})
    shown = capsys.readouterr()
    assert why in " ".join(shown.out.split())
    text = "palisade: no node can give its status; the output has the reasons\n"
    assert shown.err == ("" if output == "json" else text)


def test_address_that_gives_no_answer_in_time_gets_no_advice_to_start_a_node() -> None:
    """`palisade status --endpoints` of a frozen node advised to start one with 'palisade up'."""
    message = unreachable((RUNS,), "--endpoints", reasons={RUNS: "no answer in time"}).message
    assert f"the node at {RUNS} may be frozen or busy: retry, or give other --endpoints" in message
    assert "palisade up" not in message
    assert "palisade up" in unreachable((RUNS,), "--endpoints", reasons={RUNS: "connection refused"}).message
