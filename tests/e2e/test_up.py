"""`palisade up` as a new user runs it: ready, demo catalog, Ctrl-C, the same data again, kill -9 (issue 2)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import WORKER, WORKERS, runs

pytestmark = pytest.mark.e2e

WAIT_S = 120
"""Longest wait for an event, or for the end of a run."""


class Up:
    """One run of `palisade up --json`, read line by line."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "palisade.cli", "up", "--json", "--data-dir", str(folder), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Kills the run if the block takes too long, so that reading from it ends."""
        watchdog = threading.Timer(WAIT_S, self.process.kill)
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def wait(self, name: str, **fields: Any) -> dict[str, Any]:
        """The next event of this name with these fields. Fails if the run ends before."""
        assert self.process.stdout is not None
        with self._in_time():
            for line in self.process.stdout:
                event: dict[str, Any] = json.loads(line)
                self.events.append(event)
                if event["event"] == name and fields.items() <= event.items():
                    return event
        raise AssertionError(
            f"no {name}; it said {self.events} and {self.process.stderr and self.process.stderr.read()}"
        )

    def end(self) -> tuple[int, str]:
        """(exit code, stderr) of a run that ends by itself. `communicate` would lose what `wait` has read ahead, which
        may end in the middle of a line."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with self._in_time(), ThreadPoolExecutor(1) as thread:
            err = thread.submit(self.process.stderr.read)
            self.events += [json.loads(line) for line in self.process.stdout]
            return self.process.wait(timeout=WAIT_S), err.result()

    def give_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.end()[0]


@pytest.fixture
def base_port() -> int:
    """A block of 210 ports that is free at both ends; tests may run beside a cluster with the default ports. No other
    process of the same test run returns the same block. As for a server, a port counts as free although connections
    of an earlier test wait there for their end (TIME_WAIT, 60 s)."""
    for base in range(20_000 + WORKER % WORKERS * 300, 30_000, WORKERS * 300):
        try:
            for offset in (1, 2, 3, 101, 102, 103, 201, 202, 203):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", base + offset))
            return base
        except OSError:
            continue
    raise AssertionError("no free block of ports")


@pytest.fixture
def up(tmp_path: Path, base_port: int) -> Iterator[Callable[..., Up]]:
    runs: list[Up] = []

    def start(*options: str, folder: Path = tmp_path / "cluster") -> Up:
        runs.append(Up(folder, *options))
        return runs[-1]

    yield start
    for run in runs:
        run.give_up()


def palisade(endpoints: list[str], *arguments: str) -> Any:
    command = [sys.executable, "-m", "palisade.cli", *arguments, "--json"]
    command += ["--endpoints", ",".join(endpoints)] if endpoints else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    return json.loads(done.stdout)


def wait_until_gone(pids: list[int]) -> None:
    end = time.monotonic() + 20
    while alive := [pid for pid in pids if runs(pid)]:
        assert time.monotonic() < end, f"still running: {alive}"
        time.sleep(0.05)


def test_up_starts_a_cluster_with_a_catalog_and_restarts_it(up: Callable[..., Up], base_port: int) -> None:
    first = up("--base-port", str(base_port))
    first.wait("formatted", nodes=3, base_port=base_port)
    endpoints = first.wait("ready")["endpoints"]
    loaded = first.wait("demo-loaded")
    assert loaded["entries"] == loaded["written"] > 4_000
    assert palisade(endpoints, "get", "/catalog/airlines/UA")["kv"]["value"].endswith('"United Air Lines Inc."}')
    rows = palisade(endpoints, "status")["nodes"]
    assert sorted(row["role"] for row in rows) == ["follower", "follower", "leader"]
    assert all(row["ready"] for row in rows)
    revision = palisade(endpoints, "put", "/mine", "kept")["revision"]
    assert first.stop() == 0
    assert [event["event"] for event in first.events[-2:]] == ["stopping", "stopped"]

    second = up()
    second.wait("opened", nodes=3, base_port=base_port)
    second.wait("ready")
    kept = palisade(endpoints, "get", "/mine")
    assert (kept["kv"]["value"], kept["kv"]["mod_revision"]) == ("kept", revision)
    assert palisade(endpoints, "range", "/catalog/", "--prefix", "--count-only")["count"] == loaded["entries"]
    assert second.stop() == 0
    assert not [event for event in second.events if event["event"] == "demo-loaded"]


def test_killed_node_is_reported_and_restarted(up: Callable[..., Up], base_port: int) -> None:
    run = up("--base-port", str(base_port), "--no-demo")
    pid = run.wait("node-started", node="n2")["pid"]
    endpoints = run.wait("ready")["endpoints"]
    os.kill(pid, signal.SIGKILL)
    exited = run.wait("node-exited", node="n2")
    assert (exited["reason"], exited["restart_in_s"]) == ("killed by SIGKILL", 1.0)
    assert run.wait("node-started", node="n2")["pid"] != pid
    palisade(endpoints, "put", "/a", "x")
    assert run.stop() == 0


def test_killed_supervisor_leaves_no_process(up: Callable[..., Up], base_port: int) -> None:
    run = up("--base-port", str(base_port), "--no-demo")
    run.wait("ready")
    pids = [event["pid"] for event in run.events if event["event"] == "node-started"]
    run.process.kill()
    run.process.wait()
    assert len(pids) == 3
    wait_until_gone(pids)


def test_single_node_is_a_cluster(up: Callable[..., Up], base_port: int) -> None:
    run = up("--base-port", str(base_port), "--no-demo", "--nodes", "1")
    endpoints = run.wait("ready")["endpoints"]
    assert palisade(endpoints, "put", "/a", "x")["revision"] > 1
    assert run.stop() == 0


def test_ctrl_c_that_also_ends_the_reader_of_the_output_prints_no_traceback(
    up: Callable[..., Up], base_port: int
) -> None:
    """As in `palisade up | tee FILE`."""
    run = up("--nodes", "1", "--base-port", str(base_port), "--no-demo")
    run.wait("ready")
    run.wait("status")
    assert run.process.stdout is not None
    assert run.process.stderr is not None
    run.process.stdout.close()
    run.process.send_signal(signal.SIGINT)
    assert run.process.stderr.read() == ""
    assert run.process.wait(timeout=WAIT_S) == 0


def test_format_of_log_lines_is_passed_to_the_nodes(up: Callable[..., Up], base_port: int) -> None:
    """Only the variable PALISADE_LOG_FORMAT worked."""
    run = up("--base-port", str(base_port), "--no-demo", "--nodes", "1", "--log-format", "json")
    log = Path(run.wait("node-started", node="n1")["log"])
    run.wait("ready")
    assert run.stop() == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)


def test_options_that_contradict_the_folder_are_refused(up: Callable[..., Up], base_port: int) -> None:
    run = up("--base-port", str(base_port), "--no-demo", "--nodes", "1")
    run.wait("ready")
    code, said = up().end()
    assert code == 1
    assert "in use by another process" in json.loads(said)["error"]["message"]
    assert run.stop() == 0
    for options, text in ((("--nodes", "3"), "has 1"), (("--base-port", "9000"), f"formatted with {base_port}")):
        code, said = up(*options).end()
        assert code == 1
        assert text in json.loads(said)["error"]["message"]


def test_port_in_use_is_refused_before_anything_is_formatted(
    up: Callable[..., Up], base_port: int, tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", base_port + 2))
        other.listen(1)
        code, said = up("--base-port", str(base_port)).end()
    assert code == 1
    assert (
        f"port {base_port + 2} (HTTP of n2) is in use by process {os.getpid()}" in json.loads(said)["error"]["message"]
    )
    assert not (tmp_path / "cluster" / "cluster.json").exists()


def test_removed_member_joins_again_with_an_empty_data_folder(
    up: Callable[..., Up], base_port: int, tmp_path: Path
) -> None:
    """Issue 16: the remedy that its message gives did not work under `palisade up`."""
    run = up("--base-port", str(base_port), "--no-demo")
    endpoints = run.wait("ready")["endpoints"]
    palisade(endpoints, "put", "/a", "x")
    palisade(endpoints, "member", "remove", "n1")
    exited = run.wait("node-exited", node="n1")
    assert (exited["reason"], exited["restart_in_s"]) == ("exit code 3", None)
    assert "n1 was removed from cluster" in exited["log_lines"][-1]
    assert run.stop() == 0
    again = up("--no-demo")
    again.wait("node-exited", node="n1")
    again.wait("ready")
    assert again.stop() == 0
    shutil.rmtree(tmp_path / "cluster" / "n1" / "data")
    mended = up("--no-demo")
    mended.wait("node-joins", node="n1")
    mended.wait("node-ready", node="n1")
    roles = {row["id"]: row["role"] for row in palisade(endpoints, "member", "list")["members"]}
    assert roles.keys() == {"n1", "n2", "n3"}
    assert mended.stop() == 0


def test_cluster_starts_without_a_node_whose_disk_was_lost_so_that_it_can_be_replaced(
    up: Callable[..., Up], base_port: int, tmp_path: Path
) -> None:
    """Issue 16: all nodes were stopped, so the lost one could not be removed."""
    run = up("--base-port", str(base_port), "--no-demo")
    run.wait("ready")
    assert run.stop() == 0
    shutil.rmtree(tmp_path / "cluster" / "n3" / "data")
    without = up("--no-demo")
    exited = without.wait("node-exited", node="n3")
    assert (exited["reason"], exited["restart_in_s"]) == ("its data folder was lost or swapped", None)
    assert exited["remedy"] == "run 'palisade member remove n3', then stop and start 'palisade up'"
    ready = without.wait("ready")
    endpoints = ready["endpoints"]
    assert (len(ready["urls"]), len(endpoints), ready["not_ready"]) == (2, 2, ["n3"])
    palisade(endpoints, "member", "remove", "n3")
    assert without.stop() == 0
    mended = up("--no-demo")
    mended.wait("node-joins", node="n3")
    mended.wait("ready")
    assert {each["id"] for each in palisade(endpoints, "member", "list")["members"]} == {"n1", "n2", "n3"}
    assert mended.stop() == 0


def test_cluster_whose_majority_was_lost_continues_with_one_survivor(
    up: Callable[..., Up], base_port: int, tmp_path: Path
) -> None:
    """The new folders waited forever for each other to found the cluster again."""
    folder = tmp_path / "cluster"
    run = up("--base-port", str(base_port), "--no-demo")
    cluster = run.wait("formatted")["cluster"]
    endpoints = run.wait("ready")["endpoints"]
    palisade(endpoints, "put", "/a", "x")
    assert run.stop() == 0
    for node in ("n2", "n3"):
        shutil.rmtree(folder / node / "data")
    code, said = up("--no-demo").end()
    assert code == 1
    assert "continue with one survivor: 'palisade recover-quorum" in json.loads(said)["error"]["message"]
    palisade([], "recover-quorum", "--data-dir", str(folder / "n1" / "data"), "--confirm", cluster)
    again = up("--no-demo")
    assert again.wait("ready")["not_ready"] == []
    assert palisade(endpoints, "get", "/a")["kv"]["value"] == "x"
    assert again.stop() == 0


def test_removed_member_joins_again_as_soon_as_its_data_folder_is_empty(
    up: Callable[..., Up], base_port: int, tmp_path: Path
) -> None:
    """Issue 16: it stayed down until the next start, whatever was done to its folder."""
    run = up("--base-port", str(base_port), "--no-demo")
    endpoints = run.wait("ready")["endpoints"]
    palisade(endpoints, "member", "remove", "n3")
    run.wait("node-exited", node="n3")
    shutil.rmtree(tmp_path / "cluster" / "n3" / "data")
    run.wait("node-joins", node="n3")
    while not all(row["ready"] for row in run.wait("status")["nodes"]):
        pass
    assert {each["id"] for each in palisade(endpoints, "member", "list")["members"]} == {"n1", "n2", "n3"}
    assert run.stop() == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [(("--nodes", "0"), "'--nodes': 0 is out of range"), (("--base-port", "80"), "'--base-port': 80 is out of range")],
)
def test_bad_value_is_refused(up: Callable[..., Up], options: tuple[str, ...], text: str) -> None:
    """It was 1, and "nodes: 0" without the dashes of the option."""
    code, said = up(*options).end()
    assert code == 2
    assert text in json.loads(said)["error"]["message"]


def test_folder_with_other_content_is_refused(up: Callable[..., Up], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    code, said = up(folder=tmp_path).end()
    assert code == 1
    assert "is not a data folder of Palisade (found: thesis.tex)" in json.loads(said)["error"]["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
