"""Numbers of things as text."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """'1 row', '2 rows', '0 entries': with the regular plural."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{number} {noun}s"


def agreeing(number: int, singular: str, plural: str) -> str:
    """The form of a verb for this number of things: `agreeing(1, "needs", "need")`."""
    return singular if number == 1 else plural


def revision_range(first: int, last: int) -> str:
    """'revision 7', 'revisions 7 to 9'."""
    return f"revision {last}" if first == last else f"revisions {first} to {last}"
