"""docs/commands.md, made from the definitions that --help prints: `python -m tests.tidy.commands_page` writes it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from palisade.cli.main import main
from palisade.cli.man import BEGIN_EXAMPLE, ROOT

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
WIDTH = 120
TOPICS = {
    "Running nodes": ("up", "node", "init", "load"),
    "Keys": ("put", "get", "range", "ls", "del", "txn", "watch", "compact"),
    "Leases, locks, elections": ("lease", "lock", "elect"),
    "The cluster": ("status", "member", "topology", "recovery", "alarm", "bench"),
    "Fencing": ("fencing", "region"),
    "Backup and repair": ("backup", "restore", "recover-quorum", "vault"),
    "Users": ("login", "user", "role"),
    "Catalog": ("catalog",),
    "Segments": ("segments", "query"),
    "Roles and journals": ("activation", "journal"),
    "Spark": ("pipeline",),
    "Scenarios": ("scenario",),
    "The command line itself": ("completion", "man"),
}
CLIENT = ("--endpoints", "--timeout", "-o,", "--json", "--user", "--token-file")
OPERATION = ("--wait", "--procedure")
SHARED_TEXTS = (
    "Most commands are clients of a cluster. They have these options:",
    "Operations of the catalog, also those of `palisade user` and `palisade role`, are procedures:",
)
INTRODUCTION = """\
# Commands

Every command with its options, as `palisade COMMAND --help` prints them. [cli.md](cli.md) explains how commands find a
cluster, their exit codes and the shapes of `--json`; `palisade man DIR` writes this reference as manual pages.

`scripts/fix` makes this page from the program. Do not edit it.
"""

Command = tuple[click.Command, click.Context]


def commands(command: click.Command = main, context: click.Context | None = None) -> Iterator[Command]:
    """A command and all below it that are not hidden, in the order of their lists."""
    context = context or click.Context(command, info_name=ROOT)
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from commands(inner, click.Context(inner, info_name=name, parent=context))


def named(*path: str) -> Command:
    command, context = next(commands())
    for name in path:
        assert isinstance(command, click.Group)
        inner = command.get_command(context, name)
        assert inner is not None, f"no command {' '.join(path)}"
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    return command, context


def options(command: click.Command, context: click.Context) -> dict[str, str]:
    """The text of each option by its names with their metavar; --help is left out."""
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    return {names.replace(" RANGE", ""): " ".join(text.split()) for names, text in filter(None, records)}


def shared(names: tuple[str, ...], *path: str) -> dict[str, str]:
    """The options with these names of the command at `path`."""
    return {key: text for key, text in options(*named(*path)).items() if key.split(" ")[0] in names}


def page() -> str:
    shared_options = {
        "Client options": shared(CLIENT, "status"),
        "Options of operations": shared(OPERATION, "catalog", "grant"),
    }
    parts = [INTRODUCTION]
    for (title, rows), text in zip(shared_options.items(), SHARED_TEXTS, strict=True):
        parts += [f"## {title}\n\n{text}\n", table(rows)]
    for topic, names in TOPICS.items():
        parts.append(f"## {topic}\n")
        parts += [section(*each, shared_options) for name in names for each in commands(*named(name))]
    return "\n".join(parts)


def section(command: click.Command, context: click.Context, shared_options: dict[str, dict[str, str]]) -> str:
    left, links = options(command, context), []
    for title, rows in shared_options.items():
        if rows.keys() <= left.keys():
            left = {names: text for names, text in left.items() if rows.get(names) != text}
            links.append(f"[{title.lower()}](#{title.lower().replace(' ', '-')})")
    parts = [f"### {context.command_path}\n"]
    if not isinstance(command, click.Group):
        parts.append(f"```\n{' '.join((context.command_path, *command.collect_usage_pieces(context)))}\n```\n")
    parts += paragraphs(command.help or "")
    if left:
        parts.append(table(left))
    if links:
        parts.append(f"{'Also takes' if left else 'Takes'} the {' and the '.join(links)}.\n")
    return "\n".join(parts)


def paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip("\n").split("\n\n"):
        if paragraph.strip().startswith(BEGIN_EXAMPLE):
            inside = textwrap.dedent(paragraph.replace(BEGIN_EXAMPLE, "", 1).strip("\n")).strip()
            yield f"```\n{inside}\n```\n"
        else:
            yield textwrap.fill(" ".join(paragraph.split()), WIDTH, break_on_hyphens=False) + "\n"


def table(rows: dict[str, str]) -> str:
    lines = ["| option | meaning |", "|---|---|"]
    lines += [f"| `{cell(names)}` | {cell(text)} |" for names, text in rows.items()]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
