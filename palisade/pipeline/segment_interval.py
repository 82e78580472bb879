"""The interval of a table's read, as text. Pure."""

from __future__ import annotations

import re

from palisade.catalog.errors import BadField
from palisade.catalog.segment import moment_ms, time_text
from palisade.pipeline.errors import BadOption

_MONTH, _YEAR = re.compile(r"\d{4}-\d{2}"), re.compile(r"\d{4}")


def interval_of(text: str) -> tuple[str, str]:
    """Start and end of a text such as 2013-03/2013-04: years, months, days or times in UTC; the end is excluded.

    Raises BadOption."""
    start, slash, end = text.partition("/")
    try:
        times = [time_text(moment_ms(_day(each))) for each in (start, end)]
        if slash and times[0] < times[1]:
            return times[0], times[1]
    except BadField:
        pass
    raise BadOption(f"option interval={text!r} is not a start, a slash and a later end, such as 2013-03/2013-04")


def _day(text: str) -> str:
    if _YEAR.fullmatch(text):
        return f"{text}-01-01"
    return f"{text}-01" if _MONTH.fullmatch(text) else text
