"""One node process of a scenario: started, stopped, killed and paused by its process id, and asked over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.cli.scenarios.story import Report
from palisade.cli.supervisor.child import Child
from palisade.node.config import InitialMember
from palisade.recovery.report_file import kept_report
from palisade.vault.opening import read_vault

ANSWER_S = 3.0
STOP_S = 20.0


class Actor:
    """`arguments`: those of `palisade node` without the data folder; they may be changed between two starts."""

    def __init__(
        self, name: str, folder: Path, http: str, swim: str, arguments: list[str], requests: HttpRequests
    ) -> None:
        self.name = name
        self.http = http
        self.swim = swim
        self.arguments = arguments
        self.plan: dict[str, Any] = {}
        """The plan of `staged_node.py` for the node's vault; empty for a plain `palisade node`."""
        self.folder = folder
        self.data_dir = folder / "data"
        self._requests = requests
        self._child: Child | None = None

    def program(self) -> list[str]:
        """The arguments of the interpreter before the options; empty for a plain `palisade node`."""
        if not self.plan:
            return []
        return ["-P", "-m", "palisade.cli.scenarios.staged_node", json.dumps(self.plan), "node"]

    async def start(self) -> None:
        if self.runs:
            raise RuntimeError(f"{self.name} runs already")
        self._child = child = Child(InitialMember(self.name, *_ANYWHERE), self.folder, self.arguments)
        if program := self.program():
            child.program = program
        (self.folder / "node.log").unlink(missing_ok=True)
        await child.start()

    @property
    def runs(self) -> bool:
        return self._child is not None and self._child.pid is not None

    @property
    def pid(self) -> int:
        """The process id; 0 while it does not run."""
        return self._child.pid or 0 if self._child is not None else 0

    async def ended(self) -> int:
        """Waits for the end of the process. Returns the exit code, negative for a signal."""
        if self._child is None:
            raise RuntimeError(f"{self.name} was never started")
        return await self._child.wait()

    async def stop(self) -> int:
        """Stops the process by SIGTERM. Raises TimeoutError if it does not end."""
        self.send(signal.SIGTERM)
        async with asyncio.timeout(STOP_S):
            return await self.ended()

    async def kill(self) -> None:
        """Kills the process, also a paused one."""
        if self.runs:
            self.send(signal.SIGKILL)
            await self.ended()

    def send(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send(number)

    def last_line(self) -> str:
        """The last line of its log, which has the reason if the process has ended."""
        lines = self._child.last_lines(1) if self._child is not None else []
        return lines[-1] if lines else ""

    # Responses. A node that does not answer raises nothing.

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any], dict[str, str]]:
        """(status, response, headers); status 0 without one. A response that is not a JSON object is {"text": ...}."""
        try:
            async with self._requests.open(self.http, path, method, json=body) as response:
                text = await response.text()
                return response.status, as_object(text), dict(response.headers)
        except NoAnswer:
            return 0, {}, {}

    async def get(self, path: str) -> dict[str, Any]:
        return (await self.ask("GET", path))[1]

    async def ready(self) -> bool:
        return (await self.ask("GET", "/readyz"))[0] == 200

    async def active(self) -> bool:
        """Whether it is in the logical topology and ready."""
        status = await self.status()
        return bool(status.get("ready")) and (status.get("topology") or {}).get("phase") == "active"

    async def status(self) -> dict[str, Any]:
        return await self.get("/v1/status")

    # Files.

    def report(self) -> Report | None:
        """The report of its last ended recovery, also after the end of the process."""
        return kept_report(self.data_dir)

    @staticmethod
    def notified(file: Path) -> list[dict[str, Any]]:
        """The calls that the component of a staged node got, in order."""
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    def vault_digest(self) -> dict[str, Any]:
        """The digests of the vault, in the shape of GET /v1/digest."""
        vault = read_vault(self.data_dir / "vault")
        try:
            return {"revision": vault.revision, "chain": vault.chain.hex(), "buckets": vault.packed_sums().hex()}
        finally:
            vault.close()


class JournalCopy(Actor):
    """A process of `palisade journal serve`, which listens at `http`."""

    def program(self) -> list[str]:
        return ["-P", "-m", "palisade.cli.scenarios.staged_copy"]


_ANYWHERE: tuple[Any] = (None,)


def as_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {"text": text}
    return found if isinstance(found, dict) else {"text": text}
