"""The one line of a Spark error that names the cause. Pure.

Spark passes the traceback of a task to the driver as text. The cause is the last error of this package in it; without
one, the innermost Java exception, such as that of a full disk; without both, the first line.
"""

from __future__ import annotations

import re

OURS = re.compile(r"(?:^|: )palisade\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
JAVA = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)+([\w$]+): (.+)$", re.MULTILINE)
"""Suppressed exceptions and their causes are indented."""
RAISED = ("pyspark.", "py4j.")
SHOWN = 500


def cause_of(error: BaseException) -> str | None:
    """None if the error is not one of Spark."""
    if not type(error).__module__.startswith(RAISED):
        return None
    text = str(error)
    found = OURS.findall(text) or JAVA.findall(text)
    if found:
        kind, message = found[-1]
        return f"{message} ({kind})"[:SHOWN]
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first[:SHOWN]
