"""--help without line breaks inside words: click breaks lines at hyphens, even in `--password-file`."""

from __future__ import annotations

from collections.abc import Iterable

import click

HYPHEN_THAT_HOLDS = "\N{NON-BREAKING HYPHEN}"


class HelpFormatter(click.HelpFormatter):
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, unbroken(args), prefix)

    def write_text(self, text: str) -> None:
        super().write_text(unbroken(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(names, unbroken(text)) for names, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(HYPHEN_THAT_HOLDS, "-")


class HelpContext(click.Context):
    formatter_class = HelpFormatter


def unbroken(text: str) -> str:
    return text.replace("-", HYPHEN_THAT_HOLDS)


def format_help_of(command: click.Command) -> None:
    """Sets the formatter of the command and of all its subcommands."""
    command.context_class = HelpContext
    if isinstance(command, click.Group):
        for each in command.commands.values():
            format_help_of(each)
