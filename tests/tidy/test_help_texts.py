"""--help in 80 columns: the list of commands has their first sentences uncut, and no line ends inside of a word."""

import re

import click
import pytest

from palisade.cli.help_formatter import HelpFormatter
from palisade.cli.main import main
from tests.tidy.commands_page import commands

WIDTH = 80 - 2
"""Of a terminal of 80 columns click leaves two free at the right."""
AROUND = 6
"""Columns that click reserves beside the longest name and the text."""


def cut_helps(group: click.Group, path: str) -> list[str]:
    """The commands of which the list would show a part of the first sentence only."""
    context = click.Context(group, info_name=path)
    found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    commands = [(name, command) for name, command in found if command is not None and not command.hidden]
    limit = WIDTH - AROUND - max((len(name) for name, _ in commands), default=0)
    cut = [f"{path} {name}" for name, command in commands if command.get_short_help_str(limit).endswith("...")]
    for name, command in commands:
        if isinstance(command, click.Group):
            cut += cut_helps(command, f"{path} {name}")
    return cut


def test_first_sentence_of_every_help_text_fits_into_80_columns() -> None:
    assert cut_helps(main, "palisade") == [], "shorten the first sentence of the docstring; the rest may follow it"


def test_long_first_sentence_is_seen_as_cut() -> None:
    group = click.Group("g", commands={"c": click.Command("c", help=60 * "long " + ".")})
    assert cut_helps(group, "g") == ["g c"]


def test_limit_is_that_of_the_printed_list() -> None:
    """One more column, and click cuts the text."""
    name, longest = "c", WIDTH - AROUND - 1
    for extra, cut in ((0, False), (1, True)):
        text = "word " * ((longest + extra) // 5 - 1)
        text += "x" * (longest + extra - len(text) - 1) + "."
        group = click.Group("g", commands={name: click.Command(name, help=text)})
        context = click.Context(group, info_name="g", terminal_width=WIDTH)
        formatter = context.make_formatter()
        group.format_commands(context, formatter)
        assert ("..." in formatter.getvalue()) is cut
        assert (cut_helps(group, "g") != []) is cut


@pytest.mark.parametrize("columns", [80, 100, 110])
def test_no_line_ends_inside_of_a_word(columns: int) -> None:
    for command, _ in commands():
        with command.make_context(command.name, [], resilient_parsing=True, terminal_width=columns) as context:
            assert re.findall(r".*\w-$", command.get_help(context), re.MULTILINE) == []


def test_help_has_the_hyphens_that_were_written() -> None:
    formatter = HelpFormatter(width=20)
    formatter.write_text("a text with --password-file")
    assert formatter.getvalue() == "a text with\n--password-file\n"
