"""`python -m tests.paths.traced_node FILE MODULE ...`: runs MODULE (a node) and records which functions it enters when.

SIGUSR1 begins the recording, SIGUSR2 ends it and writes FILE: one line of JSON, then pairs of 64-bit integers
(monotonic clock in ns, index of the function). All threads are recorded. Only functions of the product are.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
import threading
import time
from array import array
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = ("tests", "scripts", ".venv")
NO_PRODUCT = -1


def product_path(file: str) -> str | None:
    """The path below the root of the repository, links resolved; None if it is no source file of the product."""
    path = Path(file).resolve()
    if not path.is_relative_to(ROOT):
        return None
    relative = path.relative_to(ROOT)
    return None if relative.parts[0] in OUTSIDE or path.suffix != ".py" else relative.as_posix()


class Recorder:
    """Functions are numbered by the identity of their code objects, which are kept: hashing them is slow."""

    def __init__(self) -> None:
        self._active = False
        self._began_ns = 0
        self._numbers: dict[int, int] = {}
        self._codes: list[CodeType] = []
        self._functions: list[tuple[str, str, int]] = []
        self._entries: list[tuple[int, int]] = []

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._active:
            return
        code = frame.f_code
        number = self._numbers.get(id(code))
        if number is None:
            number = self._number(code)
        if number != NO_PRODUCT:
            self._entries.append((time.monotonic_ns(), number))

    def _number(self, code: CodeType) -> int:
        path = product_path(code.co_filename)
        number = NO_PRODUCT
        if path is not None:
            number = len(self._functions)
            self._functions.append((path, code.co_qualname, code.co_firstlineno))
        self._codes.append(code)
        self._numbers[id(code)] = number
        return number

    def begin(self) -> None:
        self._active, self._began_ns = True, time.monotonic_ns()
        sys.setprofile(self.profile)

    def end(self, file: Path) -> None:
        sys.setprofile(None)
        self._active = False
        entries = list(self._entries)
        partial = file.with_suffix(".partial")
        with partial.open("wb") as out:
            out.write(json.dumps({"began_ns": self._began_ns, "functions": self._functions}).encode() + b"\n")
            array("q", [each for entry in entries for each in entry]).tofile(out)
        partial.rename(file)


def main() -> None:
    file, recorder = Path(sys.argv[1]), Recorder()
    threading.setprofile(recorder.profile)
    signal.signal(signal.SIGUSR1, lambda *_: recorder.begin())
    signal.signal(signal.SIGUSR2, lambda *_: recorder.end(file))
    module = sys.argv[2]
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main()
