"""A node never outlives its supervisor, even if that is killed with -9 (issue 2)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.e2e

PARENT = textwrap.dedent(
    """
    import os, subprocess, sys
    child, alive = sys.argv[1], int(sys.argv[2])
    read_end, write_end = os.pipe()
    started = subprocess.Popen([sys.executable, "-c", child, str(read_end)], pass_fds=(read_end, alive))
    os.close(alive)
    print(started.pid, flush=True)
    started.wait()
    """
)
CHILD = textwrap.dedent(
    """
    import signal, sys
    from palisade.node.parent_pipe import watch_parent
    watch_parent(int(sys.argv[1]))
    print("watching", flush=True)
    signal.pause()
    """
)


def test_child_ends_when_its_parent_is_killed() -> None:
    alive, held_by_child = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, str(held_by_child)],
        stdout=subprocess.PIPE, pass_fds=(held_by_child,), text=True,
    )  # fmt: skip
    os.close(held_by_child)
    assert parent.stdout is not None
    try:
        assert int(parent.stdout.readline()) > 0
        assert parent.stdout.readline() == "watching\n"
        parent.send_signal(signal.SIGKILL)
        ended, _, _ = select.select([alive], [], [], 20)
        assert ended, "the child still holds its end of the pipe"
        assert os.read(alive, 1) == b""
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        os.close(alive)
