"""Parameters that name an input: a regular file, a pipe or -, not a device without an end.

A command that reads its input from a terminal prints how the input ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import click

from palisade.base.input_file import IS_A_DEVICE, is_endless
from palisade.base.network_reason import reason_of
from palisade.cli.given_path import refuse_empty

STDIN = "-"


class InputFile(click.File):
    """An opened file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        check_input(self, value, param, ctx)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if isinstance(error.__context__, OSError):
                self.fail(f"{os.fspath(value)}: {reason_of(error.__context__)}", param, ctx)
            raise


class InputPath(click.Path):
    """A path that the command opens itself."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        check_input(self, value, param, ctx)
        return super().convert(value, param, ctx)


def check_input(
    kind: click.ParamType[Any], value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    """Raises click.BadParameter for an empty path and a device without an end. The reasons why a file cannot be opened
    are those of `click`."""
    refuse_empty(kind, value, param, ctx)
    if not isinstance(value, str | os.PathLike):
        return
    if os.fspath(value) == STDIN:
        hint_at_terminal()
        return
    with suppress(OSError, ValueError):
        if is_endless(os.fspath(value)):
            kind.fail(f"{os.fspath(value)}: {IS_A_DEVICE}", param, ctx)


def hint_at_terminal(what: str = "the input") -> None:
    """Prints how the input ends if standard input is a terminal."""
    if sys.stdin.isatty():
        click.echo(f"palisade: reading {what} from the terminal; Ctrl-D ends the input", err=True)
