"""No node logs an error, or an exception that it goes on after: what it catches is no surprise, or it is a bug.

Nor does a task of a node fail without anybody who hears of it. Why a node ends is what `stays up` judges. A full or
failing disk explains what is said of just that.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.sim.node import Host
from tests.sim.schedule import FastLoop
from tests.sim.tolerance import is_failing, is_full
from tests.sim.world import Checker

ENDS_NODES = "palisade.node.component_adapters"
"""It logs which component has failed, and hands on why."""


class Hearing(logging.Handler):
    def __init__(self, hear: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(logging.WARNING)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        """Raises Violation, as whoever logs may."""
        if record.levelno >= logging.ERROR or record.exc_info:
            self._hear(record)


class LoggedErrors(Checker):
    name = "no errors logged"

    @contextmanager
    def looking(self) -> Iterator[None]:
        """What is below a warning is not even made: `ambient` has all logs off, and they are as far as here."""
        root, disabled = logging.getLogger(), logging.root.manager.disable
        handler = Hearing(self._logged)
        root.addHandler(handler)
        logging.disable(logging.INFO)
        try:
            yield
        finally:
            logging.disable(disabled)
            root.removeHandler(handler)

    def ended(self) -> None:
        """Whoever keeps a task that has failed would keep quiet for ever."""
        for process, host in self.world.owners.items():
            loop = process.loop
            if process.dead or not isinstance(loop, FastLoop):
                continue
            for error in loop.unheard():
                self.fail(f"a task of {host.id} has failed, and nobody asks for it:\n{_traced(error)}")

    def _logged(self, record: logging.LogRecord) -> None:
        turning = self.world.simulation.turning
        host = self.world.owners.get(turning)
        error = record.exc_info[1] if record.exc_info else None
        said = (error, *(record.args if isinstance(record.args, tuple) else ()))
        if record.name == ENDS_NODES or any(_is_explained(host, each) for each in said):
            return
        who = host.id if host is not None else getattr(turning, "name", "somebody")
        self.fail(f"{who} logs {record.getMessage()!r} ({record.name})\n{_traced(error)}")


def _is_explained(host: Host | None, error: object) -> bool:
    if host is None or not isinstance(error, BaseException):
        return False
    disk = host.disk
    if is_full(error):
        return disk.full or host.was_full
    return is_failing(error) and (disk.bad_vault or host.was_failing)


def _traced(error: BaseException | None) -> str:
    return "".join(traceback.format_exception(error)) if error is not None else ""
