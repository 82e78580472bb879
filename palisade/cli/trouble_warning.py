"""Warns on stderr that a command cannot get answers, for commands that print nothing for long periods (`watch`, `lock`,
`elect`): their user could not notice it otherwise."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from palisade.base.recurring_line import RecurringLine

POLL_S = 0.2


async def warn_of_trouble(
    source: Any,
    command: str = "watch",
    begins: str = "no change can arrive",
    over: str = "changes arrive again; none was missed",
) -> None:
    """Prints on stderr when `source` cannot get answers, and when it can again. `source`: a watch or a client.
    `begins`, `over`: the two texts; the reason is added to the first."""
    line, now = RecurringLine(counts=False), asyncio.get_running_loop().time
    while True:
        await asyncio.sleep(POLL_S)
        trouble = source.trouble
        text = line.holds(f"{begins}: {trouble}", now()) if trouble else line.over(over, now())
        if text is not None:
            print(f"palisade {command}: {text}", file=sys.stderr, flush=True)
