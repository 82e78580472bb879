"""Runs scenarios on request over HTTP: each in a process of its own beside the node, one at a time.

The node itself takes no part: the child is `palisade scenario run NAME --events` with a small cluster of its own. The
child ends with the node in any case (`node/parent_pipe.py`), and is terminated when the node stops. Since a scenario
starts processes, only a node that listens on loopback runs any by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from palisade.base.code_root import CODE_ROOT
from palisade.wire.scenario_errors import NoSuchScenario, ScenarioRuns, ScenariosOff

log = logging.getLogger(__name__)

LINE_BYTES_MAX = 1024 * 1024
STOP_S = 10.0
WAITING = "palisade: waiting: "
"""The beginning of a line that states what the child waits for (`cli/waiting.py`)."""


@dataclass(slots=True)
class ScenarioRun:
    """The last run of one scenario. `state`: 'never', 'running', 'held', 'did-not-hold' or 'broken'."""

    scenario: str
    state: str = "never"
    steps: list[str] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    recovery: dict[str, Any] | None = None
    error: str | None = None
    seconds: float | None = None
    waiting: str | None = None
    """What it waits for, while no step follows for some seconds."""
    last_line: str = ""
    """The last output line that is neither an event nor `waiting`: why the run broke, if it did."""
    _end: str = ""

    def on_line(self, line: str) -> None:
        """One output line of the child."""
        if line.startswith(WAITING):
            self.waiting = line.removeprefix(WAITING).strip()
            return
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            self.last_line = line.strip() or self.last_line
            return
        self.waiting = None
        if kind == "step":
            self.steps.append(event["step"])
        elif kind == "check":
            self.checks.append({name: event[name] for name in ("name", "must", "held", "seen")})
        elif kind == "report":
            self.recovery = event["recovery"]
        elif kind == "end":
            self._end = "held" if event["held"] else "broken" if event["error"] else "did-not-hold"
            self.checks, self.recovery = event["checks"], event["recovery"]
            self.error, self.seconds = event["error"], event["seconds"]

    def ended(self, code: int) -> None:
        """The child has exited and cleaned up: only now is the run over."""
        self.state, self.waiting = self._end or "broken", None
        if not self._end:
            self.error = self.last_line or f"the process of the scenario exited with code {code}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "state": self.state,
            "steps": list(self.steps),
            "waiting": self.waiting,
            "checks": list(self.checks),
            "recovery": self.recovery,
            "error": self.error,
            "seconds": self.seconds,
        }


class Playable(Protocol):
    """A scenario as the node sees it (`cli/scenarios/story.py`)."""

    @property
    def name(self) -> str: ...
    def as_dict(self) -> dict[str, Any]: ...


class ScenarioHost:
    """Starts `scenarios` on request if `allowed`: this node may start processes for its clients."""

    def __init__(self, scenarios: Sequence[Playable] = (), allowed: bool = False) -> None:
        self._scenarios = {scenario.name: scenario for scenario in scenarios}
        self._allowed = allowed
        self._runs: dict[str, ScenarioRun] = {}
        self._playing: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    def all(self) -> list[dict[str, Any]]:
        return [{**one.as_dict(), "state": self._run_of(one).state} for one in self._scenarios.values()]

    def view(self, name: str) -> dict[str, Any]:
        """Raises NoSuchScenario."""
        return self._run_of(self._known(name)).as_dict()

    def _known(self, name: str) -> Playable:
        found = self._scenarios.get(name)
        if found is None:
            raise NoSuchScenario(f"there is no scenario {name[:64]!r}; known are {', '.join(self._scenarios)}")
        return found

    def _run_of(self, scenario: Playable) -> ScenarioRun:
        return self._runs.get(scenario.name, ScenarioRun(scenario.name))

    async def start(self, name: str) -> dict[str, Any]:
        """Returns when the process has started. Raises NoSuchScenario, ScenariosOff, ScenarioRuns, OSError."""
        scenario = self._known(name)
        if not self._allowed:
            raise ScenariosOff(
                "this node listens beyond loopback and starts no scenarios for its clients: run 'palisade scenario run "
                f"{name}' on your machine, or start the node with --scenarios"
            )
        if self._playing is not None and not self._playing.done():
            running = next(run.scenario for run in self._runs.values() if run.state == "running")
            raise ScenarioRuns(
                f"scenario {running} is running: follow it with GET /v1/scenarios/{running}, retry when it has ended"
            )
        run = self._runs[name] = ScenarioRun(scenario.name, "running")
        self._playing = asyncio.create_task(self._execute(run), name=f"scenario {name}")
        return run.as_dict()

    async def _execute(self, run: ScenarioRun) -> None:
        read_end, write_end = os.pipe()
        code = -1
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "palisade.cli", "scenario", "run", run.scenario, "--events"),
                *("--parent-pipe", str(read_end)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(read_end,),
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": str(CODE_ROOT)},
                limit=LINE_BYTES_MAX,
            )
            if process.stdout is not None:
                async for line in process.stdout:
                    run.on_line(line.decode(errors="replace"))
            code = await process.wait()
        except (OSError, ValueError) as error:
            run.last_line = str(error)
        except Exception:
            log.exception("scenario not run: name=%s", run.scenario)
            run.last_line = "the node could not run it; see the log of the node"
        finally:
            os.close(read_end)
            os.close(write_end)
            run.ended(code)

    async def close(self) -> None:
        """Terminates the running scenario and lets it clean up; kills it if it does not exit in time."""
        if self._playing is None or self._playing.done():
            return
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            if self._process is not None:
                self._process.terminate()
            async with asyncio.timeout(STOP_S):
                await asyncio.shield(self._playing)
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self._playing.cancel()
        await asyncio.gather(self._playing, return_exceptions=True)
