"""The table of error codes in docs/http-api.md has every code of the program, with its status and whether to retry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from palisade.api.http.problems import CODE_OF_STATUS
from palisade.wire.error_codes import INTERNAL, SHOWN

PAGE = Path(__file__).parents[2] / "docs" / "http-api.md"
HTTP_ONLY = {
    **{code: status for status, code in CODE_OF_STATUS.items() if status != 413},
    "init-refused": 409,
    INTERNAL.code: INTERNAL.status,
    "too-many-connections": 503,
}
"""Status of the codes that are not in `palisade/wire/error_codes.py`. Most of their problems have no field `retry`."""
ROW = re.compile(r"\| (\d{3}) \| `([a-z-]+)` \| (\S.*\S) \| (yes|no)\b.* \|")


class Row(NamedTuple):
    status: int
    meaning: str
    retry: bool


def documented(text: str) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for line in text.splitlines():
        if match := ROW.fullmatch(line):
            status, code, meaning, retry = match.groups()
            assert code not in found, f"{code} is twice on the page"
            found[code] = Row(int(status), meaning, retry == "yes")
    return found


def differences(text: str) -> list[str]:
    rows, codes = documented(text), {kind.code for kind in SHOWN} | {*HTTP_ONLY}
    found = [f"{code}: not on the page" for code in codes - {*rows}]
    for code, row in rows.items():
        shown = {(each.status, kind.retry) for kind, each in SHOWN.items() if kind.code == code}
        if not shown and code not in HTTP_ONLY:
            found.append(f"{code}: not a code of the program")
        elif shown and shown != {(row.status, row.retry)}:
            found.append(f"{code}: the program has (status, retry) {shown}")
        elif not shown and row.status != HTTP_ONLY[code]:
            found.append(f"{code}: its status is {HTTP_ONLY[code]}")
    return sorted(found)


def test_page_has_every_error_code_with_status_and_retry() -> None:
    assert differences(PAGE.read_text("utf-8")) == []


def test_error_code_that_differs_from_the_page_is_found() -> None:
    text = PAGE.read_text("utf-8")
    without = "\n".join(line for line in text.splitlines() if "`bad-rows`" not in line)
    assert differences(without) == ["bad-rows: not on the page"]
    assert differences(text.replace("| 410 | `compacted`", "| 404 | `compacted`")) == [
        "compacted: the program has (status, retry) {(410, False)}"
    ]
    assert differences(text.replace("| 410 | `compacted`", "| 410 | `compact`")) == [
        "compact: not a code of the program",
        "compacted: not on the page",
    ]
