"""Processes that run `python -m palisade.cli` with the program already imported: forked from one that imported it once.

Importing the program costs a second of CPU, more than the rest of most tests. Equal to a new process: the arguments,
the environment, the folder, the log, and a process id and a session of its own. Different: `/proc` shows the command
line of the process that it was forked from, and it shares that one's memory until it writes to it (it counts as
resident from the beginning, so measured growth is the same).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.faults import kernel

PROGRAM = "palisade.cli"
MODULES = (
    "palisade.cli.main",
    "palisade.node.run",
    "palisade.node.follower",
    "palisade.node.member",
    "palisade.client",
    "palisade.cli.session",
)
REQUEST_BYTES_MAX = 1 << 17


class Preloaded:
    """One process; the part of `subprocess.Popen` that tests use."""

    def __init__(
        self, arguments: Sequence[str], stdout: int, stderr: int, environment: Mapping[str, str] = os.environ,
        *, network: int | None = None,
    ) -> None:  # fmt: skip
        """`arguments`: after the name of the program. `stdout`, `stderr`, `network` (a namespace): file descriptors."""
        self._server = _server()
        self.returncode: int | None = None
        asked = {"arguments": list(arguments), "environment": dict(environment), "folder": str(Path.cwd())}
        given = (stdout, stderr) if network is None else (stdout, stderr, network)
        self.pid: int = self._server.ask(asked, *given)
        self._end = os.pidfd_open(self.pid)

    def fileno(self) -> int:
        """Readable once it has ended."""
        return self._end

    def poll(self) -> int | None:
        return self.wait(0.0)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code, negative for a signal; None if it still runs after that time."""
        if self.returncode is None and select.select([self._end], [], [], timeout_s)[0]:
            self.returncode = os.waitstatus_to_exitcode(self._server.ask({"ended": self.pid}))
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._end, signal.SIGKILL)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._end)


class _Server:
    """The process from which they are forked, as its clients see it. It ends with this process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.preloaded", str(theirs.fileno())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
            start_new_session=True, preexec_fn=kernel.die_with_parent,
        )  # fmt: skip
        theirs.close()

    def ask(self, request: dict[str, Any], *descriptors: int) -> int:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        answer = self._socket.recv(REQUEST_BYTES_MAX)
        if not answer:
            raise RuntimeError(f"the process that forks nodes has ended with {self._process.wait()}")
        return int(answer)

    def end(self) -> None:
        """It has ended when this returns, so the resources of it and its children count for this process."""
        self._socket.close()
        self._process.wait()


@cache
def _server() -> _Server:
    made = _Server()
    atexit.register(made.end)
    return made


def serve(requests: socket.socket) -> list[str] | None:
    """Fork on request and report how the children ended. Returns the arguments in each child, None in the parent when
    no process is left that could ask."""
    own = os.getpid()
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
        if not data:
            return None
        asked = json.loads(data)
        if "ended" in asked:
            _, answer = os.waitpid(asked["ended"], 0)
        elif (answer := os.fork()) == 0:
            requests.close()
            _become(asked, descriptors, own)
            return [str(each) for each in asked["arguments"]]
        for each in descriptors:
            os.close(each)
        requests.send(str(answer).encode())


def _become(asked: dict[str, Any], descriptors: list[int], parent: int) -> None:
    kernel.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()
    for number, each in enumerate(descriptors[:2], 1):
        os.dup2(each, number)
    for each in descriptors[2:]:
        kernel.enter(each, kernel.NEW_NETWORK)
    for each in descriptors:
        os.close(each)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    gc.unfreeze()


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    arguments = serve(requests)
    if arguments is not None:
        sys.argv = [PROGRAM, *arguments]
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
