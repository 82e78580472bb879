"""Faults of a node in its log: entries that it must not have, whatever was done to it."""

from __future__ import annotations

import re
from collections.abc import Iterable

SHOWN_CHARACTERS = 3000
_ENTRY = re.compile(r"(?m)^(?=\d{4}-\d\d-\d\d |palisade node: )")
_TIME = re.compile(r"\S+ \S+ ")


def faults_in(log: str, explained: Iterable[str] = ()) -> list[str]:
    """The entries that report a fault. `explained`: patterns of entries without their time, for injected faults; an
    entry must match completely, so that a traceback is not explained by the line in front of it."""
    patterns = [re.compile(each) for each in explained]
    faults = [each for each in _ENTRY.split(log) if "Traceback" in each or " ERROR " in each]
    return [each[-SHOWN_CHARACTERS:] for each in faults if not any(_is(pattern, each) for pattern in patterns)]


def _is(pattern: re.Pattern[str], entry: str) -> bool:
    return pattern.fullmatch(_TIME.sub("", entry, count=1).rstrip("\n")) is not None
