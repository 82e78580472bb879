"""Subcommands whose modules are imported at their first use, so that a command starts with its own imports only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module

import click

from palisade.cli.help_formatter import format_help_of


class LazyCommands(MutableMapping[str, click.Command]):
    """The `commands` of a group. `places`: name of a command -> `module:attribute`."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name in self._places and name not in self._loaded:
            module, _, attribute = self._places[name].partition(":")
            self[name] = getattr(import_module(module), attribute)
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        format_help_of(command)
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places | self._loaded)

    def __len__(self) -> int:
        return len(self._places | self._loaded)
