"""The root command: accepts old spellings, and reports every usage error as one line or one JSON object."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Sequence
from typing import Any, TypeGuard

import click

from palisade.cli.daemon_thread import exit_now, is_working
from palisade.cli.help_formatter import HelpContext
from palisade.cli.numbers import NEGATIVE
from palisade.cli.old_spellings import modern
from palisade.cli.output import OutputFailed, discard_output, text_of
from palisade.cli.process_age import process_age_s
from palisade.cli.session import INTERRUPTED, UNKNOWN, USAGE, CliSession

HINT = re.compile(r"'palisade [a-z -]+'")
"""Matches a message that names a command. Such a message gets no general hint."""


class RootGroup(click.Group):
    """Ends the process with the exit codes of docs/cli.md. The object of its context is the age of the process, or None
    if a program calls the command."""

    context_class = HelpContext

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
        code: str | int | None = 0
        try:
            code = self._exit_code(words, prog_name, complete_var, as_json, extra)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()
        except OutputFailed as error:
            discard_output()
            code = code or fail_output(error, as_json)
        if is_working() and isinstance(code, int):
            exit_now(code)
        sys.exit(code)

    def _exit_code(
        self, words: Sequence[str], prog_name: str | None, complete_var: str | None, as_json: bool, extra: Any
    ) -> str | int | None:
        """Raises BrokenPipeError, OutputFailed."""
        try:
            found = super().main(words, prog_name, complete_var, False, **extra)
        except click.ClickException as error:
            return fail(error, as_json)
        except click.Abort:
            return INTERRUPTED
        except SystemExit as ended:
            return ended.code
        return found if isinstance(found, int) else 0

    def invoke(self, ctx: click.Context) -> Any:
        """Click would print an empty line for Ctrl-C, and end with 1, "refused", for a closed pipe."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            CliSession.leave_closed_pipe()


def wants_json(words: Sequence[str]) -> bool:
    """Whether the command line has --json or -o json, even if it cannot be parsed."""
    before = list(words[: words.index("--")]) if "--" in words else list(words)
    pairs = itertools.pairwise(before)
    joined = {"--json", "-ojson", "--output=json"} & set(before)
    return bool(joined) or any(pair in (("-o", "json"), ("--output", "json")) for pair in pairs)


def fail(error: click.ClickException, as_json: bool) -> int:
    """Exit code 2 for every error that click finds: options, arguments, files."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    elif as_json:
        message = message_of(error)
        print(json.dumps({"error": {"code": "usage", "message": message, "retry": False}}), file=sys.stderr)
    elif isinstance(error, click.UsageError):
        context = error.ctx
        message = message_of(error).rstrip(".")
        if isinstance(error, click.NoSuchOption) and NEGATIVE.match(error.option_name):
            message = f"{error.option_name} is not an option; an argument that begins with - goes after --"
        help_text = "" if context is None or HINT.search(message) else f"; see '{context.command_path} --help'"
        print(f"palisade: {message}{help_text}".replace("?; see", "? See"), file=sys.stderr)
    else:
        print(f"palisade: {message_of(error)}", file=sys.stderr)
    return USAGE


def message_of(error: click.ClickException) -> str:
    """On one line. Click leaves out the second name of a missing pair of flags, and
    names an argument by its choices, which the message lists."""
    if isinstance(error, click.MissingParameter) and error.param is not None and error.param.secondary_opts:
        return f"Missing option '{' / '.join([*error.param.opts, *error.param.secondary_opts])}'."
    if isinstance(error, click.BadParameter) and is_choice(error.param):
        error.param_hint = f"'{error.param.name.upper()}'"
    return " ".join(error.format_message().split())


def is_choice(param: click.Parameter | None) -> TypeGuard[click.Argument]:
    return isinstance(param, click.Argument) and isinstance(param.type, click.Choice)


def fail_output(error: OutputFailed, as_json: bool) -> int:
    """Exit code 4, because the command may have changed something."""
    message = text_of(error)
    if as_json:
        shape = {"error": {"code": "output-not-written", "message": message, "retry": False}}
        print(json.dumps(shape), file=sys.stderr)
    else:
        print(f"palisade: {message}", file=sys.stderr)
    return UNKNOWN
