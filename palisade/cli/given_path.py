"""A parameter that names a file or a folder. An empty one, as of an unset variable of a script, is not the current
folder."""

from __future__ import annotations

import os
from typing import Any

import click


class GivenPath(click.Path):
    """A path that is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        refuse_empty(self, value, param, ctx)
        return super().convert(value, param, ctx)


def refuse_empty(
    kind: click.ParamType[Any], value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    """Raises click.BadParameter."""
    if isinstance(value, str | os.PathLike) and not os.fspath(value):
        kind.fail("is empty; give a path", param, ctx)
