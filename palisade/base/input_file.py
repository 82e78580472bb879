"""Refuses input without an end before it is read: a device such as /dev/zero fills the memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

IS_A_DEVICE = "it is a device; give a regular file or a pipe"


def ending_input(path: str | Path) -> Path:
    """The path of an input that is read as a whole. Raises OSError if it is endless, or if there is no such file."""
    if is_endless(path):
        raise OSError(IS_A_DEVICE)
    return Path(path)


def is_endless(path: str | Path) -> bool:
    """Whether it is a device other than a terminal and the null device. Raises OSError if there is no such file."""
    found = os.stat(path)
    return stat.S_ISBLK(found.st_mode) or (
        stat.S_ISCHR(found.st_mode) and found.st_rdev != os.stat(os.devnull).st_rdev and not _is_terminal(path)
    )


def _is_terminal(path: str | Path) -> bool:
    device = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        return os.isatty(device)
    finally:
        os.close(device)
