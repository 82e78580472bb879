"""Keeps the garbage collections short that Spark runs in its Python workers.

A worker serves one task after the other, and Spark collects garbage in it after each of them. A collection visits
every object of every module, those of pyarrow and pandas included: 40 ms of CPU, more than a small task needs. Frozen
objects are not visited: 2 ms.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import cache


def freeze_modules() -> None:
    """Freezes what exists, once after each import. To be called where a task begins: Spark has just collected, so there
    is little garbage that would be kept. Does nothing outside of a worker that is used again."""
    if "SPARK_REUSE_WORKER" in os.environ:
        _freeze(len(sys.modules))


@cache
def _freeze(modules: int) -> None:
    gc.freeze()
