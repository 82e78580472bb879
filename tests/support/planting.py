"""Processes with a planted fault: `python -m MODULE_OF_FAULTS FAULT MODULE ARGUMENTS...` runs MODULE with it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Mapping

Fault = Callable[[], None]
"""Patches the product, before it starts."""


def named(*faults: Fault) -> dict[str, Fault]:
    return {each.__name__: each for each in faults}


def run_planted(faults: Mapping[str, Fault]) -> None:
    """By the arguments of this process."""
    fault, module, *rest = sys.argv[1:]
    faults[fault]()
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def data_dir() -> str:
    """Of the node that this process runs."""
    option = "--data-dir="
    return next(each for each in sys.argv if each.startswith(option)).removeprefix(option)
