"""Errors of the data source that need no traceback: their text has the reason and the remedy.

Spark 4.3 puts the traceback of its Python process before each error, unless the variable SPARK_HIDE_TRACEBACK is set
in that process. The process ends after an error, so the variable, which is set here, applies to no other one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from palisade.base.errors import PalisadeError

P = ParamSpec("P")
T = TypeVar("T")
HIDE = "SPARK_HIDE_TRACEBACK"


def plain_refusals(method: Callable[P, T]) -> Callable[P, T]:
    """For the methods that Spark calls while it plans. Other errors, which are bugs, keep their traceback."""

    @functools.wraps(method)
    def called(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return method(*arguments, **named)
        except PalisadeError:
            if "SPARK_REUSE_WORKER" in os.environ:  # a process of Spark
                os.environ[HIDE] = "1"
            raise

    return called
