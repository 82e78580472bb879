"""The pure parts of `palisade up`: layout, restarts, lines."""

from __future__ import annotations

import io
import json
import os
import socket

import pytest

from palisade.base.address import Address
from palisade.base.errors import ConfigError
from palisade.base.port_probe import PortUnavailable, check_free
from palisade.cli.supervisor.cluster import arguments
from palisade.cli.supervisor.events import SupervisorEvent
from palisade.cli.supervisor.restart_policy import Ending, backoff_s, describe_exit, failures_in_a_row, judge
from palisade.cli.supervisor.screen import ScreenLines
from palisade.node.local_layout import Layout, check_same, layout_from_json


def test_the_ports_are_those_of_the_design() -> None:
    first, _, third = Layout("c").members()
    assert (str(first.http), str(first.peer), str(first.stream)) == (
        "127.0.0.1:7401",
        "127.0.0.1:7501",
        "127.0.0.1:7601",
    )
    assert (third.id, str(third.stream)) == ("n3", "127.0.0.1:7603")


def test_the_base_port_shifts_all_of_them() -> None:
    assert Layout("c", 1, 9000).initial_cluster() == "n1=127.0.0.1:9101:9001:9201"


def test_what_is_written_down_is_read_again() -> None:
    layout = Layout("c", 5, 8400)
    assert layout_from_json(layout.to_json()) == layout


def test_the_options_of_a_node_make_a_valid_configuration(tmp_path) -> None:
    from palisade.node.config_sources import load_node_config

    options = iter(arguments(Layout("c"), "n2"))
    typed = {name.removeprefix("--"): value for name, value in zip(options, options, strict=True)}
    config = load_node_config(typed | {"data-dir": str(tmp_path)}, None, {})
    assert (config.id, str(config.peer), len(config.initial_cluster)) == ("n2", "127.0.0.1:7502", 3)


@pytest.mark.parametrize(("nodes", "base_port"), [(0, 7400), (10, 7400), (3, 80), (3, 65_500)])
def test_a_layout_that_cannot_work_is_refused(nodes: int, base_port: int) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        Layout("c", nodes, base_port)


def test_a_folder_keeps_its_nodes_and_ports() -> None:
    check_same(Layout("c"), None, None)
    check_same(Layout("c"), 3, 7400)
    with pytest.raises(ConfigError, match="nodes: 5 was given, but the cluster in this folder has 3"):
        check_same(Layout("c"), 5, None)
    with pytest.raises(ConfigError, match="base-port: 8400 was given"):
        check_same(Layout("c"), None, 8400)


def test_a_layout_with_a_field_missing_is_refused() -> None:
    with pytest.raises(ConfigError, match="lacks cluster, nodes or base_port"):
        layout_from_json({"cluster": "c", "nodes": "3", "base_port": 1})


def test_the_pause_doubles_up_to_half_a_minute() -> None:
    assert [backoff_s(failures) for failures in (1, 2, 3, 6, 500)] == [1, 2, 4, 30, 30]


def test_a_node_that_ran_for_long_fails_for_the_first_time_again() -> None:
    assert [failures_in_a_row(3, ran_s) for ran_s in (1.0, 61.0)] == [4, 1]


def test_a_refusal_is_not_tried_again_but_a_crash_is() -> None:
    assert [judge(code) for code in (2, 1, -9, 0)] == [Ending.REFUSED, Ending.FAILED, Ending.FAILED, Ending.FAILED]


def test_the_end_of_a_process_is_named() -> None:
    assert [describe_exit(code) for code in (1, -9, -99)] == ["exit code 1", "killed by SIGKILL", "killed by signal 99"]


def test_a_port_in_use_is_refused_with_the_process_that_has_it() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        address = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(PortUnavailable) as refusal:
            check_free(address, "HTTP of n1", "give another --base-port")
    assert f"port {address.port} (HTTP of n1) is in use by process {os.getpid()}" in str(refusal.value)
    assert "give another --base-port" in str(refusal.value)
    check_free(address, "HTTP of n1", "")


def test_an_address_that_is_not_of_this_machine_is_refused() -> None:
    with pytest.raises(PortUnavailable, match=r"can't listen on 192\.0\.2\.1"):
        check_free(Address("192.0.2.1", 7401), "http", "correct --http")


def test_json_events_are_one_object_per_line() -> None:
    out = io.StringIO()
    with ScreenLines(out, as_json=True) as screen:
        screen.tell(SupervisorEvent("node-ready", "n1 is ready", {"node": "n1"}))
        screen.status([{"id": "n1", "role": "leader", "revision": 1}])
        screen.status([{"id": "n1", "role": "leader", "revision": 2}])
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"event": "node-ready", "node": "n1"},
        {"event": "status", "nodes": [{"id": "n1", "role": "leader", "revision": 1}]},
    ]


def test_plain_lines_tell_the_progress_in_tenths() -> None:
    out = io.StringIO()
    with ScreenLines(out, as_json=False) as screen:
        for done in range(1001):
            screen.tell(SupervisorEvent("demo", f"{done}", {"done": done, "total": 1000}))
    assert out.getvalue().split() == [str(done) for done in range(0, 1001, 100)]
