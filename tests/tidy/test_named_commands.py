"""The commands and subcommands that messages and help texts name exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.commands_page import commands

from .conftest import Source

NAMED = re.compile(r"\bpalisade ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")
NO_COMMAND = {"is", "on", "rows", "stream", "to"}
"""Words that follow the name of the program in a sentence."""
GOES_ON = {"and", "for", "with"}
"""Words that follow a group of commands in a sentence; any other word is a subcommand."""


def existing() -> set[str]:
    return {context.command_path.partition(" ")[2] for _, context in commands()}


def unknown(text: str, known: set[str]) -> list[str]:
    """The names of commands in the text that are none."""
    found = []
    groups = {name.split(" ")[0] for name in known if " " in name}
    for first, second in NAMED.findall(text):
        if first in NO_COMMAND:
            continue
        name = f"{first} {second}" if first in groups and second and second not in GOES_ON else first
        if name not in known:
            found.append(name)
    return found


def strings(source: Source) -> Iterator[str]:
    return (
        node.value for node in ast.walk(source.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_named_commands_exist(production: list[Source]) -> None:
    """Two remedies of a recovery named `palisade digest`, which is no command."""
    known = existing()
    assert [(each.path, name) for each in production for text in strings(each) for name in unknown(text, known)] == []


def test_unknown_command_is_found() -> None:
    assert unknown("see 'palisade digest', palisade vault check and palisade status", existing()) == [
        "digest",
        "vault check",
    ]
