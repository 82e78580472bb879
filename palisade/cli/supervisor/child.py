"""One `palisade node` process, with its command line and its log file.

It has its own process group, so Ctrl-C in the terminal reaches only the supervisor, which then stops the nodes in
order. The process always ends with the supervisor: `node/parent_pipe.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from palisade.base.child_signal import signal_child
from palisade.base.code_root import CODE_ROOT
from palisade.node.config import InitialMember

LOG_BYTES_MAX = 16 * 1024 * 1024
TAIL_BYTES = 8 * 1024


class Child:
    def __init__(self, member: InitialMember, folder: Path, arguments: list[str]) -> None:
        """`folder`: that of the node, with its data in folder/data and its log in folder/node.log."""
        self.member = member
        self.log_path = folder / "node.log"
        self.program = ["-P", "-m", "palisade.cli", "node"]
        """The arguments of the interpreter before the options of the node."""
        self.data_dir = folder / "data"
        self._folder = folder
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._pipe: int | None = None
        self._log_start = 0
        """Position in the log at the last start."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    @property
    def options(self) -> list[str]:
        """Those of the node, without its pipe."""
        return [*self._arguments, "--data-dir", str(self.data_dir)]

    def has_data(self) -> bool:
        try:
            return any(self.data_dir.iterdir())
        except FileNotFoundError:
            return False

    def start_with(self, arguments: list[str]) -> None:
        """Replace the options for later starts."""
        self._arguments = arguments

    async def start(self) -> None:
        """Raises OSError if the process cannot be started."""
        self._folder.mkdir(parents=True, exist_ok=True)
        rotate(self.log_path)
        read_end, self._pipe = os.pipe()
        try:
            with self.log_path.open("ab") as log:
                self._log_start = log.seek(0, os.SEEK_END)
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, *self.program, *self.options),
                    *("--parent-pipe", str(read_end)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(read_end,),
                    process_group=0,
                    env=os.environ | {"PYTHONPATH": str(CODE_ROOT)},
                )
        finally:
            os.close(read_end)

    async def wait(self) -> int:
        """The exit code of the running process, negative for a signal."""
        if self._process is None:
            raise RuntimeError(f"{self.member.id} was never started")
        code = await self._process.wait()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        return code

    def send(self, number: signal.Signals) -> None:
        """Does nothing if the process has ended."""
        if self._process is not None:
            signal_child(self._process, number)

    def last_lines(self, count: int = 5) -> list[str]:
        """The last lines that the process has logged since its last start."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return [line for line in lines if line.strip()][-count:]


def rotate(log: Path) -> None:
    """Keeps one older log when the log is long."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
