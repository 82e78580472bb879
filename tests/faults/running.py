"""Runs a scenario in a process of its own, and returns its report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any

from tests.faults import kernel

LONGEST_S = 150.0


async def played(scenario: str, *options: str, within_s: float = LONGEST_S, show: bool = False) -> dict[str, Any]:
    """The report of `tests.faults.play`. A run that does not end in time is killed, with all its processes. `show`: its
    progress goes to stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.play", scenario, *options, stdout=subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
        start_new_session=True, preexec_fn=kernel.die_with_parent,
    )  # fmt: skip
    try:
        out, said = await asyncio.wait_for(process.communicate(), within_s)
    except TimeoutError:
        return {"scenario": scenario, "violations": [], "failed": f"it did not end within {within_s} s", "log": []}
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    try:
        return dict(json.loads(out))
    except ValueError:
        failed = f"it ended with {process.returncode}: {(said or b'').decode(errors='replace')[-3000:]}"
        return {"scenario": scenario, "violations": [], "failed": failed, "log": []}


def shown(report: dict[str, Any]) -> str:
    """As text, for a run that failed."""
    told = [f"{name}: {value}" for name, value in report.items() if name != "log"]
    return "\n".join([*told, *report["log"]])
