"""A run leaves no process, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import until

RUN = """
import signal, sys
from pathlib import Path
from tests.support.processes import NodeProcess
node = NodeProcess(Path(sys.argv[1]), "n1")
node.program = ["-c", "import signal; signal.pause()"]
node.start()
print(node.pid, flush=True)
signal.pause()
"""


@pytest.mark.e2e
@pytest.mark.parametrize("how", ["terminate", "kill"])
async def test_run_that_is_killed_takes_its_nodes_along(how: str, tmp_path: Path) -> None:
    """`scripts/fuzz` under a time limit left its nodes running (regression)."""
    run = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)], stdout=subprocess.PIPE)
    assert run.stdout is not None
    node = Path("/proc") / run.stdout.readline().decode().strip()
    assert node.exists()
    getattr(run, how)()
    run.communicate()
    await until(lambda: not node.exists() or ") Z " in (node / "stat").read_text(), "the end of the node", 5)
