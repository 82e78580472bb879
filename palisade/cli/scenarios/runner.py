"""Runs one scenario in a folder of its own and for a bounded time; no process is left in any case."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from palisade.catalog.demo.entries import CatalogEntry
from palisade.cli.scenarios.stage import DidNotHold, Emit, Stage
from palisade.cli.scenarios.story import Report, Scenario, ScenarioEvent, ScenarioOutcome, complete, judge_case
from palisade.metastore.errors import MetastoreError
from palisade.raftgroup.errors import RaftError
from palisade.recovery.report_json import report_lines
from palisade.vault.errors import VaultError

FAILURES = (MetastoreError, RaftError, VaultError, OSError)
"""Errors that the cluster of a scenario may cause; any other one is a bug."""


async def run(
    scenario: Scenario[Stage], entries: Sequence[CatalogEntry], emit: Emit, *, keep: bool = False
) -> ScenarioOutcome:
    """Reports step by step. Failures of the demonstration are in the outcome; a cancellation is raised."""
    folder = Path(tempfile.mkdtemp(prefix=f"palisade-{scenario.name}-"))
    began = time.monotonic()
    emit(
        ScenarioEvent(
            "scenario", f"{scenario.name}: {scenario.title}", {"scenario": scenario.name, "title": scenario.title}
        )
    )
    error, report = "", None
    try:
        async with Stage(scenario, folder, entries, emit) as stage:
            try:
                async with asyncio.timeout(scenario.limit_s):
                    report = await scenario.play(stage)
            except TimeoutError:
                error = f"it did not end within {scenario.limit_s:g} s"
            except FAILURES as failed:
                error = f"{type(failed).__name__}: {failed}"
            except DidNotHold as failed:
                error = str(failed)
            _conclude(stage, report, emit)
    finally:
        if not keep:
            await asyncio.to_thread(shutil.rmtree, folder, True)
    outcome = ScenarioOutcome(
        scenario,
        tuple(stage.steps),
        tuple(complete(scenario, stage.checks)),
        report,
        time.monotonic() - began,
        error,
        str(folder) if keep else None,
    )
    emit(ScenarioEvent("end", end_text(outcome), outcome.as_dict()))
    return outcome


def _conclude(stage: Stage, report: Report | None, emit: Emit) -> None:
    if report is not None:
        lines = report_lines(report)
        emit(ScenarioEvent("report", "\n    ".join(lines), {"scenario": stage.scenario.name, "recovery": report}))
    check = judge_case(stage.scenario, report)
    if check is not None:
        stage.add(check)


def end_text(outcome: ScenarioOutcome) -> str:
    name, seconds = outcome.scenario.name, f"{outcome.seconds:.1f} s"
    kept = f"; its folder is {outcome.folder}" if outcome.folder else ""
    if outcome.error:
        return f"{name}: NOT COMPLETED ({seconds}){kept}: {outcome.error}"
    missed = [check.name for check in outcome.checks if not check.held]
    if missed:
        return f"{name}: DOES NOT HOLD ({seconds}){kept}: {', '.join(missed)}"
    return f"{name}: holds ({seconds}){kept}"
