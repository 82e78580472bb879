"""A running recovery as people and programs see it: real processes and a terminal (issue 3, R4, R12)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from palisade.client import Client
from tests.support.processes import Cluster, FollowerProcess, palisade, until

pytestmark = pytest.mark.e2e

REVISIONS = 600
STANDS_AT = 400


class Standing:
    """A follower in the middle of a replay: its component waits until `go_on`."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.gate, self.ledger = folder / "go-on", folder / "notified"
        plan = {"listener_ms": 1, "holds_at": STANDS_AT, "until": str(self.gate), "notified": str(self.ledger)}
        self.node = FollowerProcess(folder, "f1", join=cluster["n1"].http)
        self.node.program = ["-m", "palisade.cli.scenarios.staged_node", json.dumps(plan)]

    def go_on(self) -> None:
        self.gate.touch()

    async def under_way(self) -> dict[str, Any] | None:
        """Its progress at the point where it waits: a batch is done when all of its revisions are."""
        if not self.ledger.exists() or self.ledger.read_bytes().count(b"\n") < STANDS_AT - 1:
            return None
        found = await self.node.get("/v1/recovery")
        progress = found["under_way"] if found is not None and found["http_status"] == 200 else None
        return progress if progress is not None and progress["done"] else None


@pytest.fixture
async def standing(new_cluster: Any, tmp_path: Path) -> AsyncIterator[Standing]:
    cluster = new_cluster(1)
    cluster.start()
    await cluster.ready()
    async with Client(cluster.endpoints) as client:
        await client.put_many((f"k/{number}", "v") for number in range(REVISIONS))
    made = Standing(cluster, tmp_path)
    made.node.start()
    await until(made.under_way, "a replay under way")
    yield made
    made.node.kill()


class Terminal:
    """A command whose stdout and stderr are a terminal. `shown`: its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process, self._master = process, master
        self.shown = ""
        os.set_blocking(master, False)

    def has_shown(self, pattern: str) -> bool:
        try:
            while data := os.read(self._master, 65536):
                self.shown += data.decode(errors="replace")
        except (BlockingIOError, OSError):
            """No output now; EIO when the other side has closed."""
        return re.search(pattern, self.shown) is not None

    async def ended(self) -> int:
        await until(lambda: self.has_shown("$^") or self.process.poll() is not None, "the end of the command")
        self.has_shown("")
        assert self.process.returncode is not None
        return self.process.returncode


@contextlib.contextmanager
def on_terminal(*arguments: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-m", "palisade.cli", *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment,
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


CURSOR_SHOWN = "\x1b[?25h"


async def test_progress_bar_on_a_terminal_follows_the_recovery(standing: Standing) -> None:
    with on_terminal("recovery", "--at", standing.node.http) as terminal:
        await until(lambda: terminal.has_shown(r"f1: replay \d+ %"), "the bar")
        await until(lambda: terminal.has_shown(r"replay: \d+ of 601 revisions, [\d,]+/s, about"), "its numbers")
        standing.go_on()
        assert await terminal.ended() == 0, terminal.shown
        assert "f1: case b, done in" in terminal.shown
        assert CURSOR_SHOWN in terminal.shown


@pytest.mark.parametrize("more", [[], ["--watch"]])
async def test_ctrl_c_ends_the_bar_and_not_the_recovery(standing: Standing, more: list[str]) -> None:
    with on_terminal("recovery", "--at", standing.node.http, *more) as terminal:
        await until(lambda: terminal.has_shown(r"f1: replay \d+ %"), "the bar")
        terminal.process.send_signal(signal.SIGINT)
        assert await terminal.ended() == 130, terminal.shown
        assert "Traceback" not in terminal.shown
        assert terminal.shown.rstrip().endswith(CURSOR_SHOWN) or CURSOR_SHOWN in terminal.shown[-200:]
    assert await standing.under_way()
    standing.go_on()
    await until(standing.node.ready, "f1 being ready")


async def test_status_and_api_show_the_progress_of_a_recovery(standing: Standing) -> None:
    endpoints = ",".join(standing.cluster.endpoints)
    for arguments in (("--endpoints", endpoints), ("--at", standing.node.http)):
        code, out, err = await palisade("status", *arguments)
        assert code == 0, err
        assert re.search(r"f1\tfollower-node\t.*\trecovering \(replay \d+ %\)\t", out), out
    watching = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "palisade.cli", "recovery", "--at", standing.node.http, "--watch", "--json"),
        stdout=subprocess.PIPE,
    )
    try:
        await followed(watching, standing)
    finally:
        with contextlib.suppress(ProcessLookupError):
            watching.kill()
        await watching.wait()


async def followed(watching: asyncio.subprocess.Process, standing: Standing) -> None:
    """Until the end of the recovery, and then Ctrl-C."""
    assert watching.stdout is not None
    first = json.loads(await watching.stdout.readline())["under_way"]
    assert (first["phase"], first["total"]) == ("replay", REVISIONS + 1)
    standing.go_on()
    while (found := json.loads(await watching.stdout.readline()))["under_way"] is not None:
        assert found["under_way"]["done"] >= first["done"] or found["under_way"]["phase"] != "replay"
    assert found["recoveries"][-1]["outcome"] == "done"
    watching.send_signal(signal.SIGINT)
    assert await watching.wait() == 130


async def test_changed_catch_up_difference_applies_to_a_running_recovery(standing: Standing) -> None:
    """R4: the threshold is changed at run time, effective in the running recovery."""
    at = ("--at", standing.node.http)
    code, out, err = await palisade("recovery", *at, "--catch-up-difference", "100000")
    assert (code, "is 100000 revisions until the next start; it was 100" in out) == (0, True), err
    standing.go_on()
    await until(standing.node.ready, "f1 being ready")
    code, out, _ = await palisade("recovery", *at, "--json")
    report = json.loads(out)["recoveries"][0]
    assert (code, report["difference"], report["outcome"]) == (0, 100_000, "done")
    assert STANDS_AT <= report["revisions_replayed"] < REVISIONS
