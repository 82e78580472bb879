"""The root command: accepts old spellings, and reports every usage error as one line or one JSON object."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from palisade.cli.help_formatter import HelpContext, format_help_of
from palisade.cli.old_spellings import modern
from palisade.cli.process_age import process_age_s
from palisade.cli.session import INTERRUPTED, USAGE


class RootGroup(click.Group):
    """Ends the process with the exit codes of docs/cli.md. The object of its context is the age of the process, or None
    if a program calls the command."""

    context_class = HelpContext

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        format_help_of(cmd)
        super().add_command(cmd, name)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if args is None:
            extra.setdefault("obj", process_age_s)
        words, notes = modern(sys.argv[1:] if args is None else args)
        as_json = wants_json(words)
        for note in () if as_json else notes:
            print(f"palisade: {note}", file=sys.stderr)
        if not standalone_mode:
            return super().main(words, prog_name, complete_var, False, **extra)
        try:
            found = super().main(words, prog_name, complete_var, False, **extra)
        except click.ClickException as error:
            fail(error, as_json)
        except click.Abort:
            sys.exit(INTERRUPTED)
        sys.exit(found if isinstance(found, int) else 0)


def wants_json(words: Sequence[str]) -> bool:
    """Whether the command line has --json or -o json, even if it cannot be parsed."""
    before = list(words[: words.index("--")]) if "--" in words else list(words)
    pairs = itertools.pairwise(before)
    joined = {"--json", "-ojson", "--output=json"} & set(before)
    return bool(joined) or any(pair in (("-o", "json"), ("--output", "json")) for pair in pairs)


def fail(error: click.ClickException, as_json: bool) -> NoReturn:
    """Exit code 2 for every error that click finds: options, arguments, files."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    elif as_json:
        message = " ".join(error.format_message().split())
        print(json.dumps({"error": {"code": "usage", "message": message, "retry": False}}), file=sys.stderr)
    elif isinstance(error, click.UsageError):
        context = error.ctx
        help_text = f"; see '{context.command_path} --help'" if context is not None else ""
        message = " ".join(error.format_message().split()).rstrip(".")
        print(f"palisade: {message}{help_text}", file=sys.stderr)
    else:
        print(f"palisade: {' '.join(error.format_message().split())}", file=sys.stderr)
    sys.exit(USAGE)
