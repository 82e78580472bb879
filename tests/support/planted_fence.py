"""`python -m tests.support.planted_fence FAULT MODULE ...`: runs MODULE (a node) with a fault planted in its fencing.

The first ones prove that the checker over the history of reads sees what it is for; `stages_lost` is no fault of ours
but of the world, and must do no harm.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from typing import Any

import fencing.registry
from fencing.messages import Stage
from node.fencing.holder import VaultHolder
from node.fencing.strict_answers import StrictAnswers


def release_without_stage() -> None:
    """The leader waits for nobody."""
    registry: Any = fencing.registry.Registry
    registry.safe_up_to = lambda self, now, latest: latest
    registry.blocks = lambda self, revision, now, latest: False


def answer_at_commit() -> None:
    """A strict write is answered as any other."""
    answers: Any = StrictAnswers
    answers.hold = lambda self, done, timeout_s: done


def stages_lost() -> None:
    """The holder hears everything but what is staged, once it has joined: its heartbeats go on (F11)."""
    holder: Any = VaultHolder
    deliver = holder.deliver

    def lossy(self: Any, message: Any) -> None:
        if not (isinstance(message, Stage) and message.rows and self.core.joined):
            deliver(self, message)

    holder.deliver = lossy


FAULTS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (release_without_stage, answer_at_commit, stages_lost)
}


if __name__ == "__main__":
    fault, module, *rest = sys.argv[1:]
    FAULTS[fault]()
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
