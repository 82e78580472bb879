"""How `pytest -n` hands out tests of a run with `--chain FOLDER`: each file to one process, and the files below that
folder all to one, one after the other.

Thus tests with Spark, which take more than a processor each, run beside tests that mostly wait, and not beside each
other.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling


class Chained(LoadFileScheduling):
    def __init__(self, config: pytest.Config, log: Producer | None, folder: str) -> None:
        super().__init__(config, log)
        self._folder = folder

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid, self._folder)


def scope_of(nodeid: str, folder: str) -> str:
    """Tests with the same one run in one process."""
    file = nodeid.partition("::")[0]
    return folder if file.startswith(f"{folder}/") else file
