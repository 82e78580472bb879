"""palisade segments realtime: list, append, close, give-up (docs/segments.md)."""

from __future__ import annotations

import getpass
import itertools
import json
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from palisade.base.counted import counted
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.base.network_reason import json_reason, reason_of
from palisade.cli.input_file import InputPath
from palisade.cli.node_requests import ask_each, no_answer_from
from palisade.cli.numbers import WholeNumber
from palisade.cli.old_spellings import note
from palisade.cli.options import NAME, GivenText, client_options, read_moment
from palisade.cli.segment_records import segments
from palisade.cli.segments import too_few_keepers
from palisade.cli.session import UNKNOWN, USAGE, CliSession, Failure
from palisade.client.node_addresses import addresses_in
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.wire.segment_errors import RealtimeNotStored

if TYPE_CHECKING:
    from palisade.catalog.realtime_rows import Columns
    from palisade.client import Client
    from palisade.client.realtime import RealtimeWriter
    from palisade.client.realtime_changes import Closed

TIMEOUT_S = 5.0
BATCH = 1_000
HEADER = ("segment", "node", "state", "rows", "note")


@segments.group()
def realtime() -> None:
    """Segments whose rows a data node still receives.

    Rows are counted as soon as they are acknowledged. A closed segment is published, and its copies move to the nodes
    that it is assigned to.
    """


@realtime.command("list")
@click.argument("data_source", default="")
@click.option("--given-up", is_flag=True, help="The audit records of segments that were given up.")
@client_options
def list_(session: CliSession, data_source: str, given_up: bool) -> None:
    """List the realtime segments, of DATA_SOURCE or of all.

    States: opening (its node has not applied the opening yet), realtime (grows), publishing (closed), handing-off
    (published, its copies move), given-up, missing (its node does not serve it; queries fail), damaged (its node cannot
    read its rows; queries fail unless others have copies).
    """
    if given_up:
        records = session.call(lambda client: client.realtime_given_up())
        audits = [(each["segment"], each["ingester"], each["by"], each["reason"]) for each in records]
        header, wraps = ("segment", "node", "by", "reason"), ["segment", "reason"]
        session.rows({"given_up": records}, header, audits, wraps=wraps, none="no segment was given up")
        return
    silent: dict[str, str] = {}
    found = session.call(
        lambda client: known(client, data_source, session.deadline_s, silent), why=lambda: no_answer_from(silent)
    )
    rows = [tuple("" if each[name] is None else each[name] for name in HEADER) for each in found]
    none = f"there is no realtime segment{f' of data source {data_source}' if data_source else ''}"
    session.rows({"segments": found}, HEADER, rows, wraps=["segment", "note"], none=none)


async def known(
    client: Any, data_source: str, deadline_s: float, silent: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The realtime segments: growing and given-up ones by their records, and those that only the nodes report.
    `silent`: as in `ask_each`."""
    sources = [data_source] if data_source else (await client.segments_list(""))["data_sources"]
    records = [each for source in sources for each in (await client.segments_list(source))["segments"]]
    addresses = addresses_in(await client.topology())
    answers = await ask_each(addresses, report_of, min(TIMEOUT_S, deadline_s), silent)
    reports = {each["segment"]: each for found_there in answers.values() for each in found_there}
    found = []
    for record in records:
        report = reports.pop(record["segment"], None)
        if record.get("ingester") and (not record["digest"] or report is not None):
            found.append(one_of(record, report))
    left = [each for name, each in sorted(reports.items()) if not data_source or name.startswith(f"{data_source}/")]
    return [*found, *({**each, "note": each["error"]} for each in left)]


def one_of(record: dict[str, Any], report: dict[str, Any] | None) -> dict[str, Any]:
    grows = not record["digest"]
    state = "missing" if report is None else report["state"]
    if grows and not record["replicas"]:
        state = "given-up"
    elif grows and state != "damaged" and record["ingester"] not in record["nodes"]:
        state = "missing"
    return {
        "segment": record["segment"],
        "node": record["ingester"],
        "state": state,
        "rows": None if report is None else report["rows"],
        "note": "its node does not answer" if report is None else report["error"],
    }


async def report_of(requests: HttpRequests, address: str) -> list[dict[str, Any]]:
    try:
        answer = await requests.json(address, "/v1/segments/realtime")
    except NoAnswer:
        return []
    return reports_in(answer.content) if answer.status < 400 else []


def reports_in(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The reports in a response, including one for each directory that the node cannot read."""
    damaged = {
        directory.replace("@", "/"): {"node": found["node"], "state": "damaged", "rows": None, "error": why}
        for directory, why in found["damaged"].items()
    }
    return [*({"segment": name, **each} for name, each in damaged.items()), *found["segments"]]


@realtime.command("append")
@click.argument("data_source", type=NAME)
@click.argument("file", type=InputPath(exists=True, dir_okay=False, path_type=Path, allow_dash=True))
@click.option("--from", "start", required=True, type=read_moment, metavar="TIME", help="Such as 2013-03-01, in UTC.")
@click.option("--to", "end", required=True, type=read_moment, metavar="TIME", help="The end, which is excluded.")
@click.option("--column", "columns", multiple=True, required=True, metavar="NAME:TYPE", help="Once for each column.")
@click.option("--node", type=NAME, help="The data node that receives the rows.  [default: the first that opens it]")
@click.option("--writer", type=NAME, help="Name of the writer, whose open segment is continued. Needs --node.")
@click.option(
    "--replicas",
    type=WholeNumber(1, 64),
    default=1,
    show_default=True,
    help="Replication factor of the published segment.",
)
@click.option(
    "--close/--keep-open",
    "closes",
    default=None,
    help="Close the segment afterwards.  [default: --close without --writer, --keep-open with it]",
)
@client_options
def append(session: CliSession, data_source: str, file: Path, **how: Any) -> None:
    """Append the rows in FILE to a realtime segment.

    FILE (- for standard input) has a JSON list or object in each line. Types: string, int, double, boolean,
    timestamp, date, binary.

    With --writer, the command skips as many rows of FILE as the segment already has, so it can be repeated after a
    failure or when FILE has grown. The skipped rows are not compared with the segment: if FILE begins with other rows,
    these are lost without an error. Use each --writer for one file only. Without --writer, no other command can
    continue the segment, so it is closed.

    Without --node, data nodes that do not answer are skipped. Once a node may have opened the segment, no other node is
    used. Exit code 4: the last rows may be stored; the message shows how to continue without storing a row twice.
    Exit code 2: a line is invalid. If it is one of the first 1,000, no segment is opened; otherwise the message has the
    number of stored rows and how to continue.
    """
    columns = columns_of(session, how.pop("columns"))
    how |= {name: how[name] or "" for name in ("node", "writer")}
    if how["writer"] and not how["node"]:
        raise click.UsageError("--writer needs --node: its segment is continued at the node that has it")
    given, start, end = how.pop("closes"), how.pop("start"), how.pop("end")
    closes = not how["writer"] if given is None else given

    async def run(client: Any) -> tuple[dict[str, Any], str | None]:
        from palisade.catalog.realtime_rows import columns_from

        rows = rows_in(file, columns_from(columns))
        begin = list(itertools.islice(rows, BATCH))  # before anything is opened, as one of these lines may be invalid
        writer = client.realtime(data_source, start, end, columns, timeout_s=session.deadline_s, **how)
        again = Repetition(writer, how["writer"], closes)
        remark = None if session.as_json else await too_few_keepers(client, how["replicas"], session.deadline_s)
        try:
            await writer.open()
            return await fill(writer, file, itertools.chain(begin, rows), closes), remark
        except OutcomeUnknown as error:
            raise OutcomeUnknown(f"{error}. {again.text()}") from None
        except RealtimeNotStored as error:
            if not writer.grows:
                raise
            fail_unknown(session, error, f". {again.text()}")
        except click.UsageError as error:
            if not writer.grows:
                raise
            text = f"{error.message}; {again.state()}. Correct FILE first. {again.text()}"
            session.fail(Failure(USAGE, "usage", text, False))
        except BaseException:
            if writer.grows:
                session.note(f"{again.state()}. {again.text()}")
            raise
        finally:
            await writer.release()

    found, remark = session.call(run)
    state = ", closed" if closes else ""
    skipped = f", the first {found['skipped']:,} of them were there already" if found["skipped"] else ""
    session.answer(found, f"{found['segment']}: {counted(found['rows'], 'row')}{skipped}{state}")
    if remark is not None:
        session.note(remark)


@dataclass(frozen=True, slots=True)
class Repetition:
    """How to continue after a failed command without storing a row twice. `name`: of the writer, if one was given.
    `closes`: whether the command closes the segment."""

    writer: RealtimeWriter
    name: str
    closes: bool

    def state(self) -> str:
        writer = self.writer
        return f"{writer.segment} stays open at node {writer.node} with {counted(writer.rows, 'row')}"

    def text(self) -> str:
        writer = self.writer
        publishes = f"'palisade segments realtime close {writer.segment}' publishes"
        if writer.closes:
            stored = counted(writer.full_rows + writer.rows, "row")
            return f"The first {stored} of FILE are stored; {publishes} those of this segment"
        as_writer = "" if self.name else f" with --node {writer.node} --writer {writer.name}"
        as_writer += " --close" if self.closes and not self.name else ""
        full = f"a FILE without its first {counted(writer.full_rows, 'row')}" if writer.full_rows else ""
        full = f" {'and' if as_writer else 'with'} {full}" if full else ""
        rest = f"; {publishes} the segment without the rest of FILE" if writer.grows else ""
        return f"To continue, repeat the command{as_writer}{full}: stored rows are skipped{rest}"


async def fill(writer: RealtimeWriter, file: Path, rows: Iterable[Any], closes: bool) -> dict[str, Any]:
    """`rows`: of FILE. Raises BadSegment if FILE has fewer rows than the segment: it is another file."""
    from palisade.wire.segment_errors import BadSegment

    known, found, batch = writer.rows, 0, list[Any]()
    for row in rows:
        found += 1
        if found > known:
            batch.append(row)
        if len(batch) == BATCH:
            await writer.append(batch)
            batch = []
    if batch:
        await writer.append(batch)
    if found < known:
        raise BadSegment(
            f"{writer.segment} has {counted(known, 'row')} already and {file} has {found}: give a file that begins "
            "with the rows of the segment, or another --writer"
        )
    if closes:
        await writer.close()
    shape = {"segment": writer.segment, "node": writer.node, "rows": writer.rows, "closed": closes}
    return {**shape, "skipped": known}


def rows_in(file: Path, columns: Columns) -> Iterator[Any]:
    """The rows, checked as their node does it. Raises click.UsageError."""
    from palisade.catalog.realtime_rows import UnfitRow, checked_row

    number = 0
    try:
        with click.open_file(str(file), "rb") as source:
            for line in source:
                number += 1
                row = json.loads(line.rstrip().decode("utf-8-sig"))
                checked_row(columns, row)
                yield row
    except OSError as error:
        raise click.UsageError(f"{file} can't be read: {reason_of(error)}") from None
    except UnfitRow as error:
        raise click.UsageError(f"line {number} of {file}: {error}") from None
    except json.JSONDecodeError as error:
        text = f"{json_reason(error)} at column {error.colno}"
        raise click.UsageError(f"line {number} of {file} is not JSON: {text}") from None
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"line {number} of {file} is not JSON: {reason_of(error)}") from None


def columns_of(session: CliSession, texts: Sequence[str]) -> dict[str, str]:
    """Name -> type. Raises click.UsageError."""
    from palisade.catalog.errors import BadField
    from palisade.catalog.realtime_rows import columns_from

    found: dict[str, str] = {}
    for text in texts:
        name, kind, is_old = pair_of(text)
        try:
            columns_from({name: kind})
        except BadField as error:
            why = str(error).removeprefix(f"columns.{name}: ").removeprefix("columns: ")
            raise click.UsageError(f"--column {text}: {why}") from None
        found[name] = kind
        if is_old:
            session.note(note(f"--column {text}", f"--column {name}:{kind}"))
    return found


def pair_of(text: str) -> tuple[str, str, bool]:
    """(name, type, whether the text is NAME=TYPE, the spelling of earlier versions). A name may contain both
    characters, a type neither of them. Raises click.UsageError."""
    name, _, kind = text.rpartition(":")
    is_old = not name or "=" in kind
    if is_old:
        name, _, kind = text.rpartition("=")
    if not name or not kind:
        raise click.UsageError(f"--column {text}: give NAME:TYPE, such as id:int")
    return name, kind, is_old


@realtime.command("close")
@click.argument("segment", type=NAME)
@client_options
def close(session: CliSession, segment: str) -> None:
    """Close a SEGMENT: it is published and handed off.

    The command can be repeated: a segment that is closed already remains so."""

    async def run(client: Client) -> Closed:
        try:
            return await client.realtime_closed(segment, session.deadline_s)
        except RealtimeNotStored as error:
            hint = (
                "the segment may have been closed: once the node has been restarted, 'palisade segments realtime list' "
                "shows its state"
            )
            fail_unknown(session, error, f"; {hint}")

    done = session.call(run)
    state = "is closed already" if done.before else "closed"
    session.answer({"segment": segment, "rows": done.rows}, f"{segment}: {state} with {counted(done.rows, 'row')}")


@realtime.command("give-up")
@click.argument("segment", type=NAME)
@click.option("--reason", required=True, type=GivenText("a reason"), help="For the audit record.")
@client_options
def give_up(session: CliSession, segment: str, reason: str) -> None:
    """Give up a SEGMENT whose node is permanently lost.

    Its rows are lost. Queries no longer fail because of it, and list it as unserved. Refused while its node serves it.
    """
    by, at_ms = f"{getpass.getuser()}@{socket.gethostname()}", int(time.time() * 1000)
    found = session.call(lambda client: client.realtime_give_up(segment, by=by, reason=reason, at_ms=at_ms))
    session.answer(found, f"{segment}: given up, {found['ingester']} had its rows")


def fail_unknown(session: CliSession, error: RealtimeNotStored, hint: str) -> NoReturn:
    """Ends the command: the disk of the node failed during the request, which may have been executed."""
    session.fail(Failure(UNKNOWN, error.code, f"{error}{hint}", error.retry))


__all__ = ["segments"]
