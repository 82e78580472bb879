"""The trace of one node, and what it shows of one kind of request. Pure but for reading the file.

A function belongs to the path of a request if enough windows with that request entered it. It is the request's own if
the node did not enter it in two idle windows: heartbeats, renewals of leases and other periodic work count as shared,
what one idle window contained by chance does not. A file counts if it contains an own function. Comprehensions are part
of the function around them. Code that dataclasses and named tuples generate does not count.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

PARTS_OF_FUNCTIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
IDLE_WINDOWS_OF_PERIODIC = 2


class Function(NamedTuple):
    file: str
    name: str
    line: int


class Window(NamedTuple):
    """By the monotonic clock, which the processes of a machine share."""

    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Trace:
    """`entries`: (time in ns, index of the function entered), in order of time."""

    began_ns: int
    functions: tuple[Function, ...]
    entries: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, file: Path) -> Trace:
        head, _, body = file.read_bytes().partition(b"\n")
        found = json.loads(head)
        numbers = array("q")
        numbers.frombytes(body)
        entries = sorted(zip(numbers[::2], numbers[1::2], strict=True))
        return cls(found["began_ns"], tuple(Function(*each) for each in found["functions"]), tuple(entries))

    def entered(self, window: Window) -> dict[Function, int]:
        """The functions entered in the window, with the time from its beginning to the first entry."""
        found: dict[Function, int] = {}
        for at in range(bisect_left(self.entries, (window.from_ns, -1)), len(self.entries)):
            entered_ns, index = self.entries[at]
            if entered_ns > window.until_ns:
                break
            function = self.functions[index]
            if not function.name.endswith(PARTS_OF_FUNCTIONS):
                found.setdefault(function, entered_ns - window.from_ns)
        return found


@dataclass(frozen=True, slots=True)
class RequestPath:
    """The functions that a request enters in one node, in order of first entry.

    `own`: those that no idle node enters. `sometimes`: own functions that too few windows entered; they do not
    count.
    """

    functions: tuple[Function, ...]
    own: frozenset[Function]
    sometimes: frozenset[Function]

    @property
    def files(self) -> frozenset[str]:
        return frozenset(each.file for each in self.functions)

    @property
    def own_files(self) -> frozenset[str]:
        """The files with functions that only this request enters."""
        return frozenset(each.file for each in self.own)

    @property
    def possible_files(self) -> frozenset[str]:
        """The files that at least one window entered."""
        return self.files | {each.file for each in self.sometimes}

    def counts(self) -> dict[str, int]:
        return {
            "files": len(self.own_files),
            "functions": len(self.own),
            "files_with_shared": len(self.files),
            "functions_with_shared": len(self.functions),
        }

    def as_rows(self) -> list[dict[str, str | int | bool]]:
        return [{**each._asdict(), "own": each in self.own} for each in self.functions]


def path_of(trace: Trace, windows: Sequence[Window], idle: Sequence[Window], enough: int) -> RequestPath:
    """The path of the request that was sent once in each of `windows`: what `enough` of them entered."""
    times_idle = Counter(function for window in idle for function in trace.entered(window))
    background = {function for function, times in times_idle.items() if times >= IDLE_WINDOWS_OF_PERIODIC}
    first: dict[Function, list[int]] = defaultdict(list)
    for window in windows:
        for function, after_ns in trace.entered(window).items():
            first[function].append(after_ns)
    usual = [function for function, times in first.items() if len(times) >= enough]
    usual.sort(key=lambda function: median(first[function]))
    own = frozenset(usual) - background
    return RequestPath(tuple(usual), own, frozenset(first) - background - own)
