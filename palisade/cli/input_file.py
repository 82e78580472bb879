"""Parameters that name an input: a regular file, a pipe or -, not a device without an end."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import click

from palisade.base.input_file import IS_A_DEVICE, is_endless


class InputFile(click.File):
    """An opened file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        refuse_endless(self, value, param, ctx)
        return super().convert(value, param, ctx)


class InputPath(click.Path):
    """A path that the command opens itself."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        refuse_endless(self, value, param, ctx)
        return super().convert(value, param, ctx)


def refuse_endless(
    kind: click.ParamType[Any], value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    """Raises click.BadParameter. The reasons why a file cannot be opened are those of `click`."""
    if not isinstance(value, str | os.PathLike) or os.fspath(value) == "-":
        return
    with suppress(OSError, ValueError):
        if is_endless(os.fspath(value)):
            kind.fail(f"{os.fspath(value)}: {IS_A_DEVICE}", param, ctx)
