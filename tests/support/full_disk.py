"""A limit of file sizes: a write beyond it fails as on a full disk, also for root."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


def little_room(size_bytes: int) -> None:
    """For the rest of this process."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


@contextmanager
def files_no_larger_than(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
