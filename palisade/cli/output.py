"""stdout and stderr of the process: a failed write is distinguished from a failure of the command's work.

A write to stdout that fails (a full disk) raises OutputFailed. An OSError would be reported as an error of the network
or of a file, and a traceback ends with exit code 1, which means that nothing was changed. A closed pipe stays a
BrokenPipeError: it is not an error. A write to stderr that fails does not change the exit code. Characters that the
encoding of the terminal lacks are escaped.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from palisade.base.network_reason import reason_of


class OutputFailed(Exception):
    """stdout cannot be written; the text is the reason."""


class _Stdout(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(reason_of(error)) from None


class _Stderr(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def guard() -> None:
    """Replaces `sys.stdout` and `sys.stderr`; once, at the start of the process."""
    sys.stdout = _guarded(sys.stdout, _Stdout)
    sys.stderr = _guarded(sys.stderr, _Stderr)


def _guarded(stream: Any, kind: type[io.FileIO]) -> io.TextIOWrapper:
    if stream is None:  # closed by the caller, as with '>&-'
        return open(os.devnull, "w", encoding="utf-8")
    return io.TextIOWrapper(
        io.BufferedWriter(kind(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


def discard_output() -> None:
    """What is still buffered, and all later output, is lost without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Work:
    done = False


def work_done() -> None:
    """The command has done its work; the output that follows only reports it."""
    _Work.done = True


def text_of(error: OutputFailed) -> str:
    text = f"the output can't be written: {error}"
    return f"the request was executed, but {text}" if _Work.done else text
