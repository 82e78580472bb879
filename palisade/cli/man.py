"""palisade man: manual pages in roff (man(7)), made from the same definitions as --help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from palisade.base.counted import counted
from palisade.base.network_reason import reason_of
from palisade.base.version import VERSION
from palisade.cli.given_path import GivenPath
from palisade.cli.session import REFUSED, CliSession, Failure

SECTION = 1
BEGIN_EXAMPLE = "\b"
ROOT = "palisade"


@click.command()
@click.argument("directory", type=GivenPath(path_type=Path, file_okay=False))
@click.pass_context
def man(context: click.Context, directory: Path) -> None:
    """Write a manual page for each command into DIRECTORY.

    The files are palisade.1, palisade-put.1, and so on.

    \b
    palisade man ~/.local/share/man/man1 && man palisade-put
    """
    count, written = 0, directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in pages(context.find_root().command):
            written = directory / f"{'-'.join(path)}.{SECTION}"
            written.write_text(text, encoding="utf-8")
            count += 1
    except OSError as error:
        reason = "it is not a folder" if isinstance(error, FileExistsError) else reason_of(error)
        text = f"{written} can't be written: {reason}; give another folder"
        CliSession([], 0.0, as_json=False).fail(Failure(REFUSED, "not-written", text, False))
    click.echo(f"{directory}: {counted(count, 'page')}")


def pages(root: click.Command) -> Iterator[tuple[tuple[str, ...], str]]:
    """(the words of a command, its page) for every command that is not hidden."""
    yield from _pages(root, click.Context(root, info_name=ROOT), (ROOT,))


def _pages(
    command: click.Command, context: click.Context, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    yield path, page(command, context, path)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _pages(inner, click.Context(inner, info_name=name, parent=context), (*path, name))


def page(command: click.Command, context: click.Context, path: tuple[str, ...]) -> str:
    lines = [f'.TH "{"-".join(path).upper()}" {SECTION} "" "palisade {VERSION}" "Palisade Manual"']
    lines += [".SH NAME", f"{escaped('-'.join(path))} \\- {escaped(command.get_short_help_str(200))}"]
    usage = " ".join(command.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", f".B {escaped(' '.join(path))}", escaped(usage)]
    lines += [".SH DESCRIPTION", *description(command.help or "")]
    records = [each.get_help_record(context) for each in command.get_params(context)]
    options = [each for each in records if each is not None]
    if options:
        lines.append(".SH OPTIONS")
    for names, text in options:
        lines += [".TP", f".B {escaped(names)}", escaped(" ".join(text.split()))]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                lines += [".TP", f".BR {escaped('-'.join((*path, name)))} ({SECTION})"]
                lines.append(escaped(inner.get_short_help_str(200)))
    if command.epilog:
        lines += [".SH EXIT STATUS", *description(command.epilog)]
    return "\n".join(lines) + "\n"


def description(text: str) -> list[str]:
    """Paragraphs; those that begin with a backspace character are printed as they are."""
    lines: list[str] = []
    for number, paragraph in enumerate(text.strip("\n").split("\n\n")):
        if number:
            lines.append(".PP")
        if paragraph.strip().startswith(BEGIN_EXAMPLE):
            inside = paragraph.replace(BEGIN_EXAMPLE, "", 1).strip("\n").split("\n")
            lines += [".nf", *(escaped(each) for each in inside), ".fi"]
        else:
            lines.append(escaped(" ".join(paragraph.split())))
    return lines


def escaped(text: str) -> str:
    """The text with backslashes and leading dots escaped, which roff would read as requests."""
    found = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{found}" if found.startswith((".", "'")) else found
