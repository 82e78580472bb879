"""Ctrl-C while Spark starts: the command ends with the exit code of all commands, and leaves no process behind.

Java did not end: its folder for the address was removed under it, it printed a stack trace and ran on (issue 16).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

from palisade.pipeline import running
from palisade.pipeline.quiet_start import start_java
from tests.support.cli_node import cli_node
from tests.support.waiting import until

SUBMIT = """#!/bin/sh
echo $$ > "$PIDS/new" && mv "$PIDS/new" "$PIDS/pid"
exec sleep 600
"""


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """A Spark whose Java process never gives its address."""
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    return tmp_path / "spark"


def test_ctrl_c_while_spark_starts_leaves_no_process(java: None, spark_home: Path, tmp_path: Path) -> None:
    environment = os.environ | {"SPARK_HOME": str(spark_home), "PIDS": str(tmp_path)}
    words = ("pipeline", "run", "history", "--to", str(tmp_path / "to"), "--endpoints")
    command = [sys.executable, "-m", "palisade.cli", *words]
    with (
        cli_node() as node,
        subprocess.Popen([*command, node.endpoint], env=environment, stdout=-1, stderr=-1, text=True) as job,
    ):
        try:
            asyncio.run(until((tmp_path / "pid").exists, 60))
            started = int((tmp_path / "pid").read_text())
            job.send_signal(signal.SIGINT)
            asyncio.run(until(lambda: job.poll() is not None, 60))
            left = alive(started)
        finally:
            job.kill()
            if (tmp_path / "pid").exists() and alive(started):
                os.kill(started, signal.SIGKILL)
        _, errors = job.communicate()
    assert (job.returncode, left) == (130, False)
    assert "Traceback" not in errors


def test_ctrl_c_before_popen_has_returned_leaves_no_process(java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(command: Sequence[str], **options: Any) -> tuple[subprocess.Popen[bytes], threading.Thread]:
        process, thread = start_java(command, **options)
        started.append(process)
        signal.raise_signal(signal.SIGINT)
        return process, thread

    monkeypatch.setattr("pyspark.SparkContext._gateway", None)  # of other tests in this process
    monkeypatch.setattr(running, "start_java", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a SparkContext of another test left its own
    try:
        with pytest.raises(KeyboardInterrupt), running.java_ends_with_a_failed_start():
            java_gateway.Popen(["/bin/sleep", "600"])
        assert started[0].returncode == -signal.SIGKILL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        started[0].kill()
        started[0].wait()


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
