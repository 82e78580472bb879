"""The pure parts of `palisade up`: layout, restarts, lines."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from palisade.base.address import Address
from palisade.base.errors import ConfigError
from palisade.base.port_probe import PortUnavailable, check_free
from palisade.cli.supervisor import first_user
from palisade.cli.supervisor import up as up_module
from palisade.cli.supervisor.child import Child
from palisade.cli.supervisor.cluster import arguments
from palisade.cli.supervisor.demo import progress, with_notices
from palisade.cli.supervisor.events import SupervisorEvent
from palisade.cli.supervisor.restart_policy import Ending, backoff_s, describe_exit, failures_in_a_row, judge
from palisade.cli.supervisor.screen import ScreenLines
from palisade.cli.supervisor.up import UpRefused, UpRequest, _wait_ready, check_ports, how_to_reach, opened, reasons_of
from palisade.node.local_layout import Layout, check_same, layout_from_json
from palisade.wire.auth_errors import PermissionDenied
from palisade.wire.credentials import Credentials, Password, node_proof
from tests.support.simulation import Simulation


def test_ports_are_those_of_the_design() -> None:
    first, _, third = Layout("c").members()
    assert (str(first.http), str(first.peer), str(first.stream)) == (
        "127.0.0.1:7401",
        "127.0.0.1:7501",
        "127.0.0.1:7601",
    )
    assert (third.id, str(third.stream)) == ("n3", "127.0.0.1:7603")


def test_base_port_shifts_all_ports() -> None:
    assert Layout("c", 1, 9000).initial_cluster() == "n1=127.0.0.1:9101:9001:9201"


def test_layout_is_read_as_it_was_written() -> None:
    layout = Layout("c", 5, 8400)
    assert layout_from_json(layout.to_json()) == layout


def test_options_of_a_node_are_a_valid_configuration(tmp_path) -> None:
    from palisade.node.config_sources import load_node_config

    options = iter(arguments(Layout("c"), "n2"))
    typed = {name.removeprefix("--"): value for name, value in zip(options, options, strict=True)}
    config = load_node_config(typed | {"data-dir": str(tmp_path)}, None, {})
    assert (config.id, str(config.peer), len(config.initial_cluster)) == ("n2", "127.0.0.1:7502", 3)


@pytest.mark.parametrize(("nodes", "base_port"), [(0, 7400), (10, 7400), (3, 80), (3, 65_500)])
def test_layout_out_of_range_is_refused(nodes: int, base_port: int) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        Layout("c", nodes, base_port)


def test_folder_keeps_its_nodes_and_ports() -> None:
    check_same(Layout("c"), None, None)
    check_same(Layout("c"), 3, 7400)
    with pytest.raises(ConfigError, match="nodes: 5 was given, but the cluster in this folder has 3"):
        check_same(Layout("c"), 5, None)
    with pytest.raises(ConfigError, match="base-port: 8400 was given"):
        check_same(Layout("c"), None, 8400)


def test_layout_with_a_missing_field_is_refused() -> None:
    with pytest.raises(ConfigError, match="lacks cluster, nodes or base_port"):
        layout_from_json({"cluster": "c", "nodes": "3", "base_port": 1})


def test_pause_doubles_up_to_half_a_minute() -> None:
    assert [backoff_s(failures) for failures in (1, 2, 3, 6, 500)] == [1, 2, 4, 30, 30]


def test_failure_after_a_long_run_counts_as_the_first() -> None:
    assert [failures_in_a_row(3, ran_s) for ran_s in (1.0, 61.0)] == [4, 1]


def test_crash_is_restarted_and_a_refusal_is_not() -> None:
    endings = [judge(code) for code in (2, 3, 4, 5, 1, -9, 0)]
    assert endings == [Ending.REFUSED, Ending.REMOVED, Ending.MUST_JOIN, Ending.LOST, *[Ending.FAILED] * 3]


def test_options_of_a_node_that_joins_again_name_a_member_and_no_founders() -> None:
    options = arguments(Layout("c"), "n2", join="127.0.0.1:7401")
    assert options[-2:] == ["--join", "127.0.0.1:7401"]
    assert "--initial-cluster" not in options


@pytest.mark.parametrize("exists", [False, True])
def test_up_that_is_refused_leaves_the_folder_as_it_was(tmp_path: Path, exists: bool) -> None:
    """Issue 16: a failed `up` left folders with a LOCK."""
    folder = tmp_path / "of" / "mine"
    if exists:
        folder.mkdir(parents=True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        request = UpRequest(folder, nodes=1, base_port=other.getsockname()[1] - 1)
        with pytest.raises(UpRefused, match="is in use"), opened(request, ScreenLines(io.StringIO(), as_json=True)):
            raise AssertionError("not reached")
    assert list(tmp_path.rglob("*")) == ([tmp_path / "of", folder] if exists else [])


def test_last_lines_of_a_node_are_those_of_its_last_start(tmp_path: Path) -> None:
    """Issue 16: `up` showed log lines of starts long past."""

    async def run() -> list[str]:
        child = Child(Layout("c").members()[0], tmp_path, [])
        tmp_path.joinpath("node.log").write_text("yesterday\n")
        child.program = ["-c", "print('today')"]
        await child.start()
        await child.wait()
        return child.last_lines()

    assert asyncio.run(run()) == ["today"]


def test_end_of_a_process_is_named() -> None:
    assert [describe_exit(code) for code in (1, -9, -99)] == ["exit code 1", "killed by SIGKILL", "killed by signal 99"]


def test_port_in_use_is_refused_with_the_process_that_has_it() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        address = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(PortUnavailable) as refusal:
            check_free(address, "HTTP of n1", "give another --base-port")
    assert f"port {address.port} (HTTP of n1) is in use by process {os.getpid()}" in str(refusal.value)
    assert "give another --base-port" in str(refusal.value)
    check_free(address, "HTTP of n1", "")


def test_address_of_another_machine_is_refused() -> None:
    with pytest.raises(PortUnavailable, match=r"can't listen on 192\.0\.2\.1"):
        check_free(Address("192.0.2.1", 7401), "http", "correct --http")


def test_json_events_are_one_object_per_line() -> None:
    out = io.StringIO()
    with ScreenLines(out, as_json=True) as screen:
        screen.show(SupervisorEvent("node-ready", "n1 is ready", {"node": "n1"}))
        screen.status([{"id": "n1", "role": "leader", "revision": 1}])
        screen.status([{"id": "n1", "role": "leader", "revision": 2}])
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"event": "node-ready", "node": "n1"},
        {"event": "status", "nodes": [{"id": "n1", "role": "leader", "revision": 1}]},
    ]


def test_plain_lines_report_progress_in_tenths() -> None:
    out = io.StringIO()
    with ScreenLines(out, as_json=False) as screen:
        for done in range(1001):
            screen.show(SupervisorEvent("demo", f"{done}", {"done": done, "total": 1000}))
    assert out.getvalue().split() == [str(done) for done in range(0, 1001, 100)]


# Texts of `palisade up` (issue 16, items 8 and 12).


@pytest.mark.parametrize("formatted", [False, True])
def test_port_in_use_has_a_remedy_that_works_for_the_folder(formatted: bool) -> None:
    """A new cluster can have another base port, an existing one cannot; `up` proposed what it then refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortUnavailable) as refusal:
            check_ports(Layout("c", 1, port - 1), formatted=formatted)
    text = str(refusal.value)
    assert f"port {port} (HTTP of n1) is in use" in text
    assert ("give another --base-port (now" in text) is not formatted
    assert ("give the --data-dir of another cluster. This one keeps base port" in text) is formatted


def test_base_port_of_an_existing_cluster_is_refused_with_the_way_to_move_a_backup() -> None:
    with pytest.raises(ConfigError, match=r"Omit --base-port, .* restore it with 'palisade restore --base-port 8400'"):
        check_same(Layout("c"), None, 8400)


def test_ready_text_has_the_line_to_paste(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    endpoints = ["127.0.0.1:8601", "127.0.0.1:8602"]
    line = "export PALISADE_ENDPOINTS=127.0.0.1:8601,127.0.0.1:8602"
    local, other = how_to_reach(Path(".palisade"), endpoints), how_to_reach(tmp_path / "elsewhere", endpoints)
    assert local.splitlines() == ["commands in this folder find the cluster; elsewhere:", line]
    assert other.splitlines() == ["for commands and programs:", line]


@pytest.mark.parametrize(("rows", "shown"), [([], 1), ([{"name": "root"}], 0)])
async def test_cluster_without_a_user_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, str]], shown: int
) -> None:
    events: list[SupervisorEvent] = []

    class FakeClient:
        def __init__(self, *_: object, **__: object) -> None: ...
        async def __aenter__(self) -> FakeClient:
            return self

        async def __aexit__(self, *_: object) -> None: ...
        async def status(self) -> dict[str, str]:
            return {"authorization": "on"}

        async def catalog_objects(self, collection: str) -> list[dict[str, str]]:
            return rows

    monkeypatch.setattr(first_user, "Client", FakeClient)
    monkeypatch.delenv("PALISADE_ROOT_PASSWORD_FILE", raising=False)
    await first_user.check_first_user(Layout("c"), events.append)
    assert [event.name for event in events] == ["no-user"] * shown
    assert all("PALISADE_ROOT_PASSWORD_FILE" in event.text for event in events)


def test_demo_catalog_whose_input_is_read_slowly_has_a_line_every_two_seconds() -> None:
    """Between "ready" and the catalog, `palisade up` was silent for up to 4 s (issue 16)."""
    simulation = Simulation(seed=0)
    process = simulation.process("up")
    shown: list[tuple[float, str]] = []
    began = process.now()

    def show(event: SupervisorEvent) -> None:
        shown.append((round(process.now() - began, 1), event.text))

    async def load(emit: Callable[[SupervisorEvent], None]) -> int:
        await asyncio.sleep(4)
        emit(progress(1, 2))
        await asyncio.sleep(0.5)
        return 7

    assert simulation.run(process, with_notices(show, load)) == 7
    times = [0.0, *(at for at, _ in shown), 4.5]
    assert max(later - earlier for earlier, later in pairwise(times)) < 2
    texts = [text for _, text in shown]
    assert (texts[0], texts[-1]) == ("demo catalog: reading the input (1 s)", "demo catalog: 1 of 2 entries")


DENIED = PermissionDenied("a join token does not grant write on palisade/segments")


@pytest.mark.parametrize("shown", [None, node_proof("t"), Password("ada", "secret-8")])
async def test_demo_catalog_without_a_user_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, shown: Credentials | None
) -> None:
    """It was the refusal of the join token, a credential that the user of the command had not given for this."""
    events: list[SupervisorEvent] = []

    async def denied(*_: object) -> None:
        raise DENIED

    monkeypatch.setattr(up_module, "ensure_demo", denied)
    await up_module._load_demo(Layout("c"), cast(Any, SimpleNamespace(show=events.append)), shown)
    [event] = events
    lacks = "authorization is on, and there are no credentials of a user to create it with: set PALISADE_USER and "
    state, reason = ("complete", str(DENIED)) if isinstance(shown, Password) else ("loaded", lacks)
    assert event.text.startswith(f"the demo catalog is not {state}: {reason}")
    assert event.fields["reason"].startswith(reason)


class SlowNodes:
    """Ready after `ready_s`."""

    def __init__(self, ready_s: float) -> None:
        self.began = asyncio.get_running_loop().time()
        self._ready_s = ready_s

    async def ready(self) -> dict[str, bool]:
        return dict.fromkeys(("n1", "n2", "n3"), asyncio.get_running_loop().time() >= self.began + self._ready_s)


@pytest.mark.parametrize(("ready_s", "lines"), [(0.9, 0), (2.9, 2), (20.0, 10)])
def test_nodes_that_are_not_ready_are_named_each_second(ready_s: float, lines: int) -> None:
    """A new cluster was silent for 2.9 s after the lines of its start (issue 16)."""
    seen: list[tuple[float, str]] = []

    class Screen(ScreenLines):
        def show(self, event: SupervisorEvent) -> None:
            seen.append((asyncio.get_running_loop().time(), event.text))

    async def starts() -> float:
        cluster, nodes = SimpleNamespace(refused={}, removed={}, lost={}), SlowNodes(ready_s)
        screen = Screen(io.StringIO(), as_json=False)
        ready = await _wait_ready(Layout("c"), cast(Any, cluster), cast(Any, nodes), screen, founded=False)
        assert ready == ["n1", "n2", "n3"]
        return nodes.began

    with closing(Simulation(1)) as simulation:
        began: float = simulation.run(simulation.process("up"), starts())
    notices = [text for _, text in seen if text.startswith("waiting for n1, n2, n3")]
    assert len(notices) == lines
    assert any("see their logs" in text for text in notices) == (ready_s > 15)
    silences = [later - earlier for earlier, later in pairwise([began, *(at for at, _ in seen)])]
    assert max(silences[:8]) < 2


def test_reason_of_several_nodes_is_shown_once() -> None:
    assert (
        reasons_of({"n3": "no token", "n1": "no token", "n2": "a taken name"}) == "n1, n3: no token; n2: a taken name"
    )
