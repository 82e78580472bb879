"""The words of a line, quoted as in a shell. Pure.

As `shlex.split(line, comments=True)`, whose time grows with the square of the length of a word: it takes several
seconds for a value of 500 KB.
"""

from __future__ import annotations

import re

PIECE = re.compile(
    r"""
    (?P<blank>[ \t\r\n]+)
    | (?P<comment>\#)
    | (?P<plain>[^ \t\r\n'"\\#]+)
    | '(?P<single>[^']*+)'
    | "(?P<double>(?:[^"\\]++|\\.)*+)"
    | \\(?P<escaped>.)
    """,
    re.VERBOSE | re.DOTALL,
)
"""Possessive, so that the end of a quotation that is missing is looked for only once."""
ESCAPED = re.compile(r"""\\(["\\])""")


def words_of(line: str) -> list[str]:
    """Raises ValueError."""
    words: list[str] = []
    word: list[str] | None = None
    at = 0
    while at < len(line):
        found = PIECE.match(line, at)
        if found is None:
            raise ValueError("No escaped character" if line[at] == "\\" else "No closing quotation")
        at = found.end()
        kind = found.lastgroup or ""
        if kind in ("blank", "comment"):
            words += [] if word is None else ["".join(word)]
            word = None
            if kind == "comment":
                break
            continue
        word = [] if word is None else word
        word.append(ESCAPED.sub(r"\1", found[kind]) if kind == "double" else found[kind])
    return words if word is None else [*words, "".join(word)]
