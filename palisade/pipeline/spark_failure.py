"""The one line of a Spark error that names the cause. Pure.

Spark passes the traceback of a task to the driver as text. The cause is the last error of this package in it; without
one, it is the first line.
"""

from __future__ import annotations

import re

OURS = re.compile(r"^(?:[\w.]*: )?palisade\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
RAISED = ("pyspark.", "py4j.")
SHOWN = 500


def cause_of(error: BaseException) -> str | None:
    """None if the error is not one of Spark."""
    if not type(error).__module__.startswith(RAISED):
        return None
    text = str(error)
    ours = OURS.findall(text)
    if ours:
        kind, message = ours[-1]
        return f"{message} ({kind})"[:SHOWN]
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first[:SHOWN]
