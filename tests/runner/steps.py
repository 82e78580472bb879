"""Runs commands in two lanes side by side, and prints the time of each.

The first lane has the machine: what measures times runs there. The second one takes what the first leaves (the idle
class of the scheduler gives way at once), so it holds only what computes and waits for nothing. Its output comes when
a step has ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Step:
    """`after`: a step of the other lane that has to end before this one begins. `passes`: by these exit codes."""

    name: str
    command: tuple[str, ...]
    after: str | None = None
    passes: tuple[int, ...] = (0,)


@dataclass(slots=True)
class Ended:
    name: str
    code: int
    passed: bool
    wall_s: float
    cpu_s: float


@dataclass(slots=True)
class Run:
    """`ended`: in the order in which they did."""

    ended: list[Ended] = field(default_factory=list)
    _over: dict[str, threading.Event] = field(default_factory=dict)

    def go(self, first: Sequence[Step], second: Sequence[Step] = ()) -> int:
        """The exit status: 1 if any of them fails."""
        began = time.monotonic()
        self._over = {step.name: threading.Event() for step in (*first, *second)}
        behind = threading.Thread(target=self._lane, args=(second, True))
        behind.start()
        try:
            self._lane(first, False)
            behind.join()
        except KeyboardInterrupt:  # the terminal has signalled the steps as well
            return INTERRUPTED
        print(self.table(time.monotonic() - began), flush=True)
        return int(not all(each.passed for each in self.ended))

    def _lane(self, steps: Sequence[Step], idle: bool) -> None:
        for step in steps:
            if step.after is not None:
                self._over[step.after].wait()
            try:
                self._one(step, idle)
            finally:
                self._over[step.name].set()

    def _one(self, step: Step, idle: bool) -> None:
        began = time.monotonic()
        with tempfile.TemporaryFile() as kept:
            print(f"== {step.name}: {' '.join(step.command)}", flush=True)
            code, cpu_s = run(step.command, kept if idle else None, idle)
            if idle:
                kept.seek(0)
                sys.stdout.write(f"== of {step.name}:\n{kept.read().decode(errors='replace')}")
        self.ended.append(Ended(step.name, code, code in step.passes, time.monotonic() - began, cpu_s))

    def table(self, wall_s: float) -> str:
        rows = [
            f"{each.name:24} {each.wall_s:8.0f} s {each.cpu_s:8.0f} s of CPU  {verdict(each)}" for each in self.ended
        ]
        cpu_s = sum(each.cpu_s for each in self.ended)
        return "\n".join(["", *rows, f"{'all':24} {wall_s:8.0f} s {cpu_s:8.0f} s of CPU"])


def verdict(ended: Ended) -> str:
    return "passed" if ended.passed else f"FAILED ({ended.code})"


def run(command: Sequence[str], output: IO[bytes] | None, idle: bool) -> tuple[int, float]:
    """(exit code, CPU seconds of it and of all its children that it has waited for)."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output and subprocess.STDOUT,
        preexec_fn=give_way if idle else None,
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def give_way() -> None:
    """To whatever else wants to run, from now on."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice(19)
