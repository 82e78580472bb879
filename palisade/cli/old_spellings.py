"""Spellings of earlier versions, accepted until version 0.3 (docs/vocabulary.md). Pure.

They are rewritten before the arguments are parsed; each one gives a note on stderr.
"""

from __future__ import annotations

from collections.abc import Sequence

UNTIL = "0.3"
COMMANDS = {
    ("lease", "ttl"): ("lease", "timetolive"),
    ("delete",): ("del",),
    ("partitions", "assign"): ("segments", "assign"),
    ("partitions", "list"): ("segments", "nodes"),
}
"""Words at the beginning of a command line, and their current spelling."""
OPTIONS = {
    "--deadline": ("--timeout", None),
    "--from-revision": ("--start-revision", "watch"),
    "--partitions": ("--segments", "node"),
    "--partitions-origin": ("--segments-origin", "node"),
    "--partitions-look-s": ("--segments-look-s", "node"),
    "--partitions-trash-s": ("--segments-trash-s", "node"),
}
"""Option -> (current option, the only command that had it; None: every command)."""


def modern(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(the command line in the current spelling, a note for each old spelling)."""
    found, notes = list(words), []
    for old, new in COMMANDS.items():
        if tuple(found[: len(old)]) == old:
            found[: len(old)] = new
            notes.append(note(" ".join(old), " ".join(new)))
    end = found.index("--") if "--" in found else len(found)
    for place, word in enumerate(found[:end]):
        option, equals, value = word.partition("=")
        renamed, only = OPTIONS.get(option, ("", None))
        if renamed and only in (None, found[0]):
            found[place] = f"{renamed}{equals}{value}"
            notes.append(note(option, renamed))
    return found, notes


def note(old: str, new: str) -> str:
    return f"'{old}' is now '{new}'; the old spelling works until version {UNTIL}"
