"""The texts of refused fields, with the arguments and options of a command instead of the names of fields. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import click

PATH = re.compile(
    r"(?:(?P<of>the name of a property in )?)(?P<field>\w+)(?:\[(?P<number>\d+)\])?(?:\.(?P<part>\w+))?: "
)
"""'columns[0].type: ', 'ttl_ms: '; as `catalog.row_format` writes them."""


def in_words_of_command(text: str, parameters: Iterable[click.Parameter], given: Mapping[str, Any]) -> str:
    """`text`: of BadField, such as "columns[0].type: 'x' is not one of ...". `given`: the arguments as typed."""
    found = PATH.match(text)
    parameter = next((each for each in parameters if found and each.name == found["field"]), None)
    if found is None or parameter is None:
        return text
    label, values = shown_name(parameter), given.get(found["field"])
    if found["number"] and isinstance(values, list | tuple) and int(found["number"]) < len(values):
        label += f" {values[int(found['number'])]}"
    part = "name" if found["of"] else found["part"]
    return f"{label}{f', {part}' if part else ''}: {text[found.end() :]}"


def shown_name(parameter: click.Parameter) -> str:
    """'--column', or 'TABLE' of an argument."""
    return parameter.opts[0] if isinstance(parameter, click.Option) else (parameter.name or "").upper()
