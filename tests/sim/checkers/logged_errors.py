"""No node logs an error, or a handled exception with a traceback: caught errors are expected, or they are bugs.

No task of a node fails without its error being retrieved either. `stays up` judges why a node ends. A full or failing
disk explains log entries about just that.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.sim.node import Host
from tests.sim.tolerance import is_failing, is_full
from tests.sim.world import Checker

ENDS_NODES = "palisade.node.component_adapters"
"""It logs which component has failed, and passes its error on."""
READS_LOGS = "palisade.segments.realtime_held"
"""A start on a full volume cannot sync the end of a realtime log. It reports that, and the next start reads it. A
damaged log is reported, too."""


class Hearing(logging.Handler):
    def __init__(self, hear: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(logging.WARNING)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        """Raises Violation, as any logging code may."""
        if record.levelno >= logging.ERROR or record.exc_info:
            self._hear(record)


class LoggedErrors(Checker):
    name = "no errors logged"

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Records below a warning are not even created: `ambient` has disabled them."""
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
        """A failed task that is kept would never report its error."""
        for process, host in self.world.owners.items():
            if process.dead:
                continue
            for error in process.loop.unheard():
                self.fail(f"a task of {host.id} has failed, and its error was never retrieved:\n{_traced(error)}")

    def _logged(self, record: logging.LogRecord) -> None:
        turning = self.world.simulation.turning
        host = self.world.owners.get(turning)
        error = record.exc_info[1] if record.exc_info else None
        said = (error, *(record.args if isinstance(record.args, tuple) else ()))
        if record.name == ENDS_NODES or any(_is_explained(host, each) for each in said):
            return
        if record.name == READS_LOGS and host is not None and (host.disk.segments.full or host.disk.segments.damaged):
            return
        who = host.id if host is not None else getattr(turning, "name", "a process")
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
