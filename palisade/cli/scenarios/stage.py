"""The environment of a scenario: a temporary folder, free ports on loopback, processes, waits, reports.

All processes end with the stage, whatever ends it: the end of the scenario, an error, Ctrl-C, or `kill -9` of this
process (`node/parent_pipe.py`). Processes are identified by their id only. Every wait has a time limit; its error names
the missing condition.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from palisade.base.address import Address
from palisade.base.child_signal import signal_child
from palisade.base.code_root import CODE_ROOT
from palisade.base.http_request import HttpRequests
from palisade.base.port_probe import PortUnavailable, check_free
from palisade.catalog.demo.entries import CatalogEntry
from palisade.cli.scenarios.actor import ANSWER_S, Actor, JournalCopy
from palisade.cli.scenarios.members import Members
from palisade.cli.scenarios.story import Check, Report, Scenario, ScenarioEvent, plain

WAIT_S = 30.0
POLL_S = 0.03
PORTS = range(20_000, 32_000)
"""Below the ports of outgoing connections, so that the port of a stopped node stays free until its next start."""
Emit = Callable[[ScenarioEvent], None]


class DidNotHold(Exception):
    """A condition for the next step did not become true. The text has the condition and what was seen instead."""


class Stage:
    """Use it with `async with`. `entries`: the demo catalog."""

    def __init__(self, scenario: Scenario[Stage], folder: Path, entries: Sequence[CatalogEntry], emit: Emit) -> None:
        self.scenario = scenario
        self.folder = folder
        self.entries = entries
        self.steps: list[str] = []
        self.checks: list[Check] = []
        self._emit = emit
        self._actors: list[Actor] = []
        self._ports: set[int] = set()
        self._closing: list[Callable[[], Awaitable[None]]] = []

    async def __aenter__(self) -> Stage:
        self._requests = HttpRequests(timeout_s=ANSWER_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(actor.kill() for actor in self._actors))
        for close in reversed(self._closing):
            await close()
        await self._requests.close()

    # Reports.

    def say(self, text: str) -> None:
        """Reports the beginning of a step."""
        self.steps.append(text)
        self._emit(ScenarioEvent("step", text, {"scenario": self.scenario.name, "step": text}))

    def check(self, name: str, held: bool, seen: object = "") -> None:
        """Reports a check of the scenario."""
        self.add(Check(name, self.scenario.promises()[name], bool(held), plain(seen)))

    def add(self, check: Check) -> None:
        self.checks.append(check)
        said = f": {check.seen}" if check.seen else ""
        text = f"{'holds' if check.held else 'DOES NOT HOLD'}: {check.must}{said}"
        self._emit(ScenarioEvent("check", text, {"scenario": self.scenario.name, **check.as_dict()}))

    # Processes.

    def address(self) -> str:
        """A port that is free for TCP and UDP, reserved for this stage."""
        while True:
            port = random.SystemRandom().choice(PORTS)
            if port not in self._ports and is_free(port):
                self._ports.add(port)
                return f"127.0.0.1:{port}"

    def actor(self, name: str, group: str, http: str, swim: str, arguments: list[str]) -> Actor:
        return self.added(Actor(name, self.folder / group / name, http, swim, arguments, self._requests))

    def journal_copy(self, name: str, address: str, arguments: list[str]) -> Actor:
        """A process of `palisade journal serve`."""
        return self.added(JournalCopy(name, self.folder / "journal" / name, address, "", arguments, self._requests))

    def added(self, actor: Actor) -> Actor:
        self._actors.append(actor)
        return actor

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """Called before the processes are stopped."""
        self._closing.append(close)

    async def cluster(self, size: int = 3, name: str = "shop", *, options: Sequence[str] = ()) -> Members:
        """Founding members, ready, with the demo catalog loaded."""
        members = Members(self, name, size, options)
        await members.start()
        revision = await members.load(self.entries)
        up = "1 member is up" if size == 1 else f"{size} members are up"
        self.say(f"{name}: {up}, the demo catalog is loaded: {len(self.entries)} keys, LM {revision}")
        return members

    async def command(self, *arguments: str) -> None:
        """Runs another command of palisade to its end. Raises DidNotHold if it fails."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "palisade.cli", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(CODE_ROOT)},
        )
        try:
            said = (await process.communicate())[0].decode(errors="replace").strip()
        except BaseException:
            signal_child(process, signal.SIGKILL)
            raise
        if process.returncode != 0:
            raise DidNotHold(f"palisade {arguments[0]} has ended with {process.returncode}: {said[-500:]}")

    # Waits.

    async def until(self, holds: Callable[[], Any], what: str, within_s: float = WAIT_S) -> Any:
        """The result of `holds()` once it is true. Raises DidNotHold if it does not become true in time."""
        last: Any = None
        try:
            async with asyncio.timeout(within_s):
                while not (last := await value_of(holds())):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            logs = "; ".join(f"{actor.name}: {actor.last_line()}" for actor in self._actors)
            raise DidNotHold(f"{what} did not come within {within_s:g} s. Last lines: {logs}") from None
        return last

    async def all_end(self, actors: Iterable[Actor], within_s: float = WAIT_S) -> list[int]:
        """Waits for the end of the processes; returns their exit codes."""
        chosen = list(actors)
        try:
            async with asyncio.timeout(within_s):
                return list(await asyncio.gather(*(actor.ended() for actor in chosen)))
        except TimeoutError:
            running = ", ".join(actor.name for actor in chosen if actor.runs)
            raise DidNotHold(f"{running} did not end within {within_s:g} s") from None

    async def caught_up(self, actor: Actor, revision: int) -> Report:
        """The report of the recovery after which the node is in the logical topology, and at `revision`."""

        async def there() -> bool:
            if not actor.runs:
                raise DidNotHold(f"{actor.name} has ended: {actor.last_line()}")
            status = await actor.status()
            return int(status.get("revision", 0)) >= revision and await actor.active()

        await self.until(there, f"{actor.name} active at revision {revision}")
        report = actor.report()
        if report is None:
            raise DidNotHold(f"{actor.name} is ready and has left no report of its recovery")
        return report

    async def same_state(self, actor: Actor, members: Members) -> tuple[bool, str]:
        """Whether vault and cluster are equal, digest by digest, at the same revision."""

        async def both() -> tuple[dict[str, Any], dict[str, Any]] | None:
            theirs = await members.digest()
            ours = actor.vault_digest()
            return (ours, theirs) if theirs.get("revision") == ours["revision"] else None

        ours, theirs = await self.until(both, f"the vault of {actor.name} at the cluster's revision")
        equal = all(ours[field] == theirs[field] for field in ("chain", "buckets"))
        return equal, f"revision {ours['revision']}, chain {ours['chain'][:16]}..."


async def value_of(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def is_free(port: int) -> bool:
    try:
        for udp in (False, True):
            check_free(Address("127.0.0.1", port), "an actor of a scenario", "try another port", udp=udp)
    except PortUnavailable:
        return False
    return True
