"""Ctrl-C of commands that run processes: the exit codes of their children, and how fast they end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from palisade.base.code_root import CODE_ROOT
from palisade.cli.held_command import _end

WITHIN_S = 10.0
SLOW_DEMO = """
import palisade.client.bulk_load as bulk_load
from palisade.cli.__main__ import main

def read_demo():
    while True:
        print("reading", flush=True)

bulk_load.read_demo = read_demo
main()
"""


@pytest.fixture
def pidfd_watcher() -> Iterator[None]:
    """The watcher of Python 3.12 and later, which reads the exit code when the loop runs, not in a thread."""
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())
    if sys.version_info < (3, 12):
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    yield
    asyncio.set_event_loop_policy(before)


@pytest.mark.usefixtures("pidfd_watcher")
def test_held_command_that_ended_by_the_same_ctrl_c_keeps_its_exit_code(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio warned "Unknown child process pid N, will report returncode 255" in 2 of 4 runs on a terminal."""

    async def run() -> int | None:
        process = await asyncio.create_subprocess_exec("sleep", "60")
        os.kill(process.pid, signal.SIGINT)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        await _end(process)
        return process.returncode

    with caplog.at_level(logging.WARNING, "asyncio"):
        assert asyncio.run(run()) == -signal.SIGINT
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ((), ["palisade: stopping: the processes of the scenario are ended and its files removed"]),
        (("--json",), []),
    ],
)
def test_scenario_ends_at_once_by_ctrl_c_while_it_reads_its_data(more: tuple[str, ...], shown: list[str]) -> None:
    """It waited silently for the end of the reading, 5 to 7 s. Later, the interpreter aborted at its end if the thread
    that reads was in a write or in C++ code at that moment; the thread of this test always writes."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_DEMO, "scenario", "run", "replay", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=CODE_ROOT,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=WITHIN_S)[1]
    assert process.returncode == 130
    lines = [line for line in err.splitlines() if not line.startswith("palisade: waiting: the demo data are read")]
    assert lines == shown
