"""Scenarios that are asked for over HTTP: each in a process of its own, beside the node, one at a time.

The node itself takes no part: the child is `palisade scenario run NAME --events`, with its own little cluster. It ends
with the node in any case (`node/parent_pipe.py`), and is told to end when the node stops. A scenario starts processes,
so by itself only a node that listens on loopback plays any.
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


@dataclass(slots=True)
class Run:
    """The last run of one scenario. `state`: 'never', 'running', 'held', 'did-not-hold' or 'broken'."""

    scenario: str
    state: str = "never"
    steps: list[str] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    recovery: dict[str, Any] | None = None
    error: str | None = None
    seconds: float | None = None
    said: str = ""
    """The last line that is no event: why it broke, if it did."""
    _end: str = ""

    def hear(self, line: str) -> None:
        """One line of the child."""
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            self.said = line.strip() or self.said
            return
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
        """The child has gone, and has cleaned up behind itself: only now is the run over."""
        self.state = self._end or "broken"
        if not self._end:
            self.error = self.said or f"the process of the scenario has ended with {code}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "state": self.state,
            "steps": list(self.steps),
            "checks": list(self.checks),
            "recovery": self.recovery,
            "error": self.error,
            "seconds": self.seconds,
        }


class Playable(Protocol):
    """A scenario, as far as a node that starts it needs to know it (`cli/scenarios/story.py`)."""

    @property
    def name(self) -> str: ...
    def as_dict(self) -> dict[str, Any]: ...


class ScenarioHost:
    """Starts `scenarios` on request, if `allowed`: this node may start processes for its clients."""

    def __init__(self, scenarios: Sequence[Playable] = (), allowed: bool = False) -> None:
        self._scenarios = {scenario.name: scenario for scenario in scenarios}
        self._allowed = allowed
        self._runs: dict[str, Run] = {}
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

    def _run_of(self, scenario: Playable) -> Run:
        return self._runs.get(scenario.name, Run(scenario.name))

    async def start(self, name: str) -> dict[str, Any]:
        """Returns when the process is there. Raises NoSuchScenario, ScenariosOff, ScenarioRuns, OSError."""
        scenario = self._known(name)
        if not self._allowed:
            raise ScenariosOff(
                "this node listens beyond loopback, so it starts no scenarios for who asks: run 'palisade scenario run "
                f"{name}' on a machine of yours, or start the node with --scenarios"
            )
        if self._playing is not None and not self._playing.done():
            under_way = next(run.scenario for run in self._runs.values() if run.state == "running")
            raise ScenarioRuns(f"{under_way} is under way: GET /v1/scenarios/{under_way} follows it; ask again later")
        run = self._runs[name] = Run(scenario.name, "running")
        self._playing = asyncio.create_task(self._play(run), name=f"scenario {name}")
        return run.as_dict()

    async def _play(self, run: Run) -> None:
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
                    run.hear(line.decode(errors="replace"))
            code = await process.wait()
        except (OSError, ValueError) as error:
            run.said = str(error)
        except Exception:
            log.exception("the scenario %s could not be played", run.scenario)
            run.said = "the node could not play it; its log says more"
        finally:
            os.close(read_end)
            os.close(write_end)
            run.ended(code)

    async def close(self) -> None:
        """What is under way is told to end, and cleans up behind itself; at once if it does not."""
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
