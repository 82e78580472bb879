"""A `Child` of a scenario that is forked from a process with the program imported (`preloaded.py`).

It ends with the test process, so it needs no parent pipe.
"""

from __future__ import annotations

import os
import signal

from palisade.cli.supervisor.child import Child, rotate
from tests.support.preloaded import Preloaded
from tests.support.processes import until_ended


class ForkedChild(Child):
    _forked: Preloaded | None = None

    @property
    def pid(self) -> int | None:
        return self._forked.pid if self._forked is not None and self._forked.poll() is None else None

    async def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        rotate(self.log_path)
        module, *arguments = self.program[self.program.index("-m") + 1 :]
        arguments += [*self._arguments, "--data-dir", str(self._folder / "data")]
        with self.log_path.open("ab") as log:
            self._forked = Preloaded(arguments, log.fileno(), log.fileno(), module=module)

    async def wait(self) -> int:
        if self._forked is None:
            raise RuntimeError(f"{self.member.id} was never started")
        await until_ended(self._forked)
        return self._forked.wait() or 0

    def send(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)
