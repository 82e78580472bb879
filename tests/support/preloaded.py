"""Processes that run `python -m MODULE` with the program already imported: forked from a process that imported it.

Importing the program costs a second of CPU, more than most tests need for everything else. The arguments, environment,
folder and log are those of a started process, and so are its own process id and session. Differences: `/proc` shows the
command line of the process that it was forked from, and memory is shared with that process until it is written to (it
counts as resident from the beginning, so measured growth is the same). The objects of the imported program stay frozen:
a garbage collection would otherwise write to each of them.

MODULE may patch the program, as `planted_fence` does. The program was imported before that, so a patch has to replace
an attribute of a class, or of the module that uses it.
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
from collections.abc import Callable, Mapping, Sequence
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
    "palisade.cli.scenarios.all",
)
REQUEST_BYTES_MAX = 1 << 17


class Preloaded:
    """One process; the part of `subprocess.Popen` that tests use."""

    def __init__(
        self, arguments: Sequence[str], stdout: int, stderr: int, environment: Mapping[str, str] = os.environ,
        *, network: int | None = None, module: str = PROGRAM,
    ) -> None:  # fmt: skip
        """`arguments`: those after `module`. `stdout`, `stderr`, `network` (a namespace): file descriptors."""
        self._server = _server()
        self.returncode: int | None = None
        asked = {
            "module": module, "arguments": list(arguments), "environment": dict(environment), "folder": str(Path.cwd()),
        }  # fmt: skip
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
    """The process from which they are forked, as seen by its clients. It ends with this process."""

    def __init__(self, connection: socket.socket, wait: Callable[[], object]) -> None:
        """`wait` returns once the process has ended."""
        self._socket, self._wait = connection, wait

    def ask(self, request: dict[str, Any], *descriptors: int) -> int:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        answer = self._socket.recv(REQUEST_BYTES_MAX)
        if not answer:
            raise RuntimeError(f"the process that forks nodes has ended with {self._wait()}")
        return int(answer)

    def end(self) -> None:
        """It has ended when this returns, so the resources of it and its children count for this process."""
        self._socket.close()
        self._wait()


_made: list[_Server] = []


def _server() -> _Server:
    if not _made:
        _made.append(_started())
        atexit.register(_made[0].end)
    return _made[0]


def _started() -> _Server:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.preloaded", str(theirs.fileno())],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
        start_new_session=True, preexec_fn=kernel.die_with_parent,
    )  # fmt: skip
    theirs.close()
    return _Server(ours, process.wait)


def fork_server() -> None:
    """Later processes are forked from a copy of this process as it is now, with its namespaces and what it imported.

    To be called before threads and event loops begin. Returns in this process only.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        kernel.die_with_parent()
        if os.getppid() != own:
            os._exit(1)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        run_forked(theirs)
        sys.exit()
    theirs.close()
    _made.append(_Server(ours, lambda: os.waitpid(pid, 0)))


def serve(requests: socket.socket) -> list[str] | None:
    """Forks on request and reports how forked processes ended. Returns the module and its arguments in each process
    that is forked, and None in the forking one once the other end is closed."""
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
            return [str(each) for each in (asked["module"], *asked["arguments"])]
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


def run_forked(requests: socket.socket) -> None:
    """Serves, and runs in each process that is forked what it was forked for."""
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    command = serve(requests)
    if command is not None:
        sys.argv = command
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_forked(socket.socket(fileno=int(sys.argv[1])))
