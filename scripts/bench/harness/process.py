"""One server process of a benchmark: started, measured, and ended by its id. It never outlives the benchmark."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_S = 20.0
TAIL_BYTES = 2048


class ProcessEnded(Exception):
    """A server ended by itself: names it, with the end of its log."""


class Process:
    """`log` collects what it prints. The kernel kills it when the benchmark dies (prctl(2), PR_SET_PDEATHSIG)."""

    def __init__(self, name: str, program: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._program = ["setpriv", "--pdeathsig", "KILL", *program]
        self._log = log
        self._environment = os.environ | environment
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Raises ProcessEnded when it does not run."""
        if self._process is None or self._process.returncode is not None:
            raise ProcessEnded(f"{self.name} does not run; the end of {self._log}:\n{self.last_lines()}")
        return self._process.pid

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._program,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment,
            )

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL after `STOP_S`. Does nothing when it has ended."""
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self._ended()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """kill -9."""
        self._send(signal.SIGKILL)
        await self._ended()

    async def _ended(self) -> None:
        if self._process is not None:
            await self._process.wait()

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def private_bytes(self) -> int:
        """Resident memory that is not backed by a file: RssAnon and RssShmem of proc(5). The mapped store is not."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))

    def cpu_s(self) -> float:
        """What it has used of all cores so far."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def last_lines(self) -> str:
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
        return ""
