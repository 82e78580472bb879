"""Options of `palisade journal serve` (docs/activation.md)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from palisade.cli.journal import read_advertised
from palisade.cli.main import main
from palisade.cli.waiting import LOOK_S, NOTICE_S
from palisade.journal.client import PATIENCE_S
from tests.support.processes import free_port
from tests.support.threaded_node import unused_address

SERVE = "journal", "serve", "--role=orders", "--name=a", "--dir=a", "--primary"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--listen=0.0.0.0:7901"], "--listen: 0.0.0.0:7901"),
        (["--listen=[::]:7901"], r"--listen: [::]:7901"),
        (["--listen=127.0.0.1:7901", "--advertise=0.0.0.0:7901"], "--advertise: 0.0.0.0:7901"),
    ],
)
def test_copy_that_the_other_one_cannot_reach_is_refused(options: list[str], named: str) -> None:
    """Before, it announced 0.0.0.0, and the replica dialled itself."""
    refused = CliRunner().invoke(main, [*SERVE, *options])
    assert refused.exit_code == 2
    assert f"{named} is not reachable by the other copy; give --advertise" in refused.stderr


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_copy_that_is_neither_primary_nor_backup_is_wrong_usage(form: list[str], tmp_path: Path) -> None:
    """It started as a backup and waited for a primary, without a line."""
    options = [f"--dir={tmp_path / 'a'}", f"--listen={unused_address()}", f"--endpoints={unused_address()}", *form]
    refused = CliRunner().invoke(main, ["journal", "serve", "--role=orders", "--name=a", *options])
    assert (refused.exit_code, "Missing option '--primary / --backup'" in refused.stderr) == (2, True)
    assert not (tmp_path / "a").exists()


def test_address_that_is_announced_is_advertise_or_listen() -> None:
    assert read_advertised("0.0.0.0:7901", "journal-a.example:17901") == "journal-a.example:17901"
    assert read_advertised("192.0.2.7:7901", None) == "192.0.2.7:7901"


def test_append_without_entries_reports_that_there_was_nothing_to_append() -> None:
    """It printed "0 entries  0 to 0". No copy is asked."""
    done = CliRunner().invoke(main, ["journal", "append", "--role=orders", "--copies=127.0.0.1:9"], input="")
    assert (done.exit_code, done.stdout) == (0, "nothing to append: no ENTRIES and no lines on stdin\n")


def test_copy_without_a_metadata_store_logs_that_it_does_not_answer(tmp_path: Path) -> None:
    """It logged "listening", and nothing else until it was ended. `tests/journal/test_store_trouble.py` has the times
    of the lines."""
    options = f"--name=a --dir={tmp_path} --listen={unused_address()} --endpoints={unused_address()} --primary".split()
    command = [sys.executable, "-m", "palisade.cli", "journal", "serve", "--role=orders", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
        limit = threading.Timer(20, serving.kill)
        limit.start()
        listening, line = islice(serving.stderr or (), 2)
        serving.kill()
        limit.cancel()
    assert " INFO listening" in listening, "it was logged as a warning"
    assert " WARNING metadata store does not answer: role=orders reason=" in line
    assert "connection refused" in line


@pytest.mark.parametrize("option", ["--listen", "--metrics"])
def test_port_in_use_is_refused_with_its_owner_before_the_directory_is_made(tmp_path: Path, option: str) -> None:
    """It left LOCK and role.json, and its text was "error while attempting to bind on address ..."."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used, free = (f"127.0.0.1:{port}" for port in (taken.getsockname()[1], free_port()))
        ports = ["--listen", used] if option == "--listen" else ["--listen", free, "--metrics", used]
        refused = CliRunner().invoke(main, [*SERVE[:-2], f"--dir={tmp_path / 'ja'}", "--primary", *ports, "--json"])
    error = json.loads(refused.stderr)["error"]
    assert (refused.exit_code, error["code"]) == (1, "journal-port-unusable")
    in_use = f"port {used.rpartition(':')[2]} ({option} of orders) is in use by process {os.getpid()} ("
    assert error["message"].startswith(in_use)
    assert error["message"].endswith(f"; stop that, or give another {option}")
    assert list(tmp_path.iterdir()) == []


def test_one_port_for_clients_and_metrics_is_refused_before_the_directory_is_made(tmp_path: Path) -> None:
    same = f"127.0.0.1:{free_port()}"
    options = [f"--dir={tmp_path / 'ja'}", "--primary", "--listen", same, "--metrics", same]
    refused = CliRunner().invoke(main, [*SERVE[:-2], *options])
    assert refused.stderr == f"palisade: --listen and --metrics are both {same}: give another --metrics\n"
    assert list(tmp_path.iterdir()) == []


def test_serve_leaves_the_event_loops_of_its_process_alone(tmp_path: Path) -> None:
    """Its own loop is one of uvloop. It replaced the policy of the process, so that later tests started no process."""
    policy = asyncio.get_event_loop_policy()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = f"127.0.0.1:{taken.getsockname()[1]}"
        CliRunner().invoke(main, [*SERVE[:-2], f"--dir={tmp_path / 'ja'}", "--primary", "--listen", used])
    assert asyncio.get_event_loop_policy() is policy


def test_status_shows_the_copies_that_have_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was silent until it ended, and later named all copies."""
    monkeypatch.setattr("palisade.cli.waiting.NOTICE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        copies = f"--copies={unused_address()},{address}"
        done = CliRunner().invoke(main, ["journal", "status", "--role=orders", copies, "--timeout=1"])
    assert f"palisade: waiting: no answer yet from {address}\n" in done.stderr


@pytest.mark.parametrize("command", ["read", "append one"])
@pytest.mark.parametrize("timeout_s", [0.3, 2.5])
def test_error_gives_the_reason_of_each_copy_that_does_not_answer(command: str, timeout_s: float) -> None:
    """It gave only that of the copy that was tried last (issue 16)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        frozen, unused = f"127.0.0.1:{server.getsockname()[1]}", unused_address()
        options = ["--role=orders", f"--copies={frozen},{unused}", f"--timeout={timeout_s}"]
        done = CliRunner().invoke(main, ["journal", *command.split(), *options])
    assert done.exit_code == 3
    reasons = f"({frozen}: no answer in time; {unused}: connection refused); nothing was "
    assert f"no active copy of role orders within {timeout_s:g} s {reasons}" in done.stderr


@pytest.mark.parametrize("command", ["read", "append one", "status"])
def test_empty_list_of_copies_is_wrong_usage(command: str) -> None:
    """It ended with a traceback of a ZeroDivisionError."""
    done = CliRunner().invoke(main, ["journal", *command.split(), "--role=orders", "--copies=,"])
    assert (done.exit_code, "give host:port of at least one copy" in done.stderr) == (2, True), done.stderr


def test_wait_for_a_copy_is_shown_within_a_second_after_the_request() -> None:
    """It was shown up to 1.3 s after it (issue 16)."""
    assert PATIENCE_S + LOOK_S < NOTICE_S


def test_status_of_a_journal_without_a_reachable_copy_is_unavailable() -> None:
    """The exit code was 0 (issue 16)."""
    address = unused_address()
    done = CliRunner().invoke(main, ["journal", "status", "--role=orders", f"--copies={address}", "--json"])
    (row,) = json.loads(done.stdout)["copies"]
    assert (done.exit_code, row["state"], row["reason"]) == (3, "unreachable", "connection refused")
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["retry"]) == ("unreachable", True)
    assert f"no copy of role orders answers ({address}: connection refused)" in error["message"]
