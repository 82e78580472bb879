"""Runs a scenario in a process of its own, and returns its report."""

from __future__ import annotations

import asyncio
import json
import tempfile
from typing import Any

from tests.support.preloaded import Preloaded
from tests.support.processes import until_ended

LONGEST_S = 150.0
STDERR = 2


async def played(scenario: str, *options: str, within_s: float = LONGEST_S, show: bool = False) -> dict[str, Any]:
    """The report of `tests.faults.play`. If it does not end in time it is killed with all processes that it started.
    `show`: its progress goes to stderr."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        said = STDERR if show else err.fileno()
        process = Preloaded([scenario, *options], out.fileno(), said, module="tests.faults.play")
        try:
            await asyncio.wait_for(until_ended(process), within_s)
        except TimeoutError:
            return {"scenario": scenario, "violations": [], "failed": f"it did not end within {within_s} s", "log": []}
        finally:
            process.kill()
            code = process.wait()
        for file in (out, err):
            file.seek(0)
        try:
            return dict(json.loads(out.read()))
        except ValueError:
            failed = f"it ended with {code}: {err.read().decode(errors='replace')[-3000:]}"
            return {"scenario": scenario, "violations": [], "failed": failed, "log": []}


def shown(report: dict[str, Any]) -> str:
    """As text, for a run that failed."""
    lines = [f"{name}: {value}" for name, value in report.items() if name != "log"]
    return "\n".join([*lines, *report["log"]])
