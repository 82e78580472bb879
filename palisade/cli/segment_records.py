"""palisade segments: publish, list, show, lookup, mark-unused, set-replicas, reset-loaded (docs/segments.md)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from palisade.base.counted import counted
from palisade.base.network_reason import reason_of
from palisade.cli.input_file import InputPath
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import NAME, client_options, read_moment
from palisade.cli.segments import segments, too_few_keepers
from palisade.cli.session import CliSession, failure_of

__all__ = ["segments"]

LIST_HEADER = ("segment", "state", "replicas", "rows", "nodes")
PARTS_HEADER = ("segment", "from", "to", "nodes")
SHOWN = 10
UNKNOWN = "-"

FROM = click.option("--from", "start", type=read_moment, metavar="TIME", help="Such as 2013-03-01, in UTC.")
TO = click.option("--to", "end", type=read_moment, metavar="TIME", help="The end, which is excluded.")
ON_MISSING = click.option(
    "--on-missing", type=click.Choice(["fail", "warn", "allow"]), default="fail", show_default=True,
    help="What to do if a segment has no server.",
)  # fmt: skip


@segments.command()
@click.argument("data_source", type=NAME)
@click.argument("file", type=InputPath(dir_okay=False, path_type=Path, allow_dash=True))
@client_options
def publish(session: CliSession, data_source: str, file: Path) -> None:
    """Publish the segments that FILE lists, at one revision.

    FILE (- for standard input) is a JSON list of objects with from, to, rows, size_bytes, digest, and optionally
    version, partition, core_partitions, replicas. A segment whose rows are already published is
    skipped; one with changed rows gets a higher version.
    """
    given = listed(file)
    check(session, data_source, file, given)
    done = session.call(lambda client: client.segments_publish(data_source, given))
    session.answer(
        {"data_source": data_source, "published": done}, f"{counted(done, 'segment')} published in {data_source}"
    )


def listed(file: Path) -> list[dict[str, Any]]:
    """Raises click.UsageError."""
    try:
        with click.open_file(str(file), encoding="utf-8") as source:
            found = json.load(source)
    except (OSError, ValueError, RecursionError) as error:
        raise click.UsageError(f"{file} is not a readable JSON file: {reason_of(error)}") from None
    if not isinstance(found, list):
        raise click.UsageError(f"{file} is not a JSON list of segments")
    return found


def check(session: CliSession, data_source: str, file: Path, given: list[Any]) -> None:
    """Checks the entries as nodes do. Unlike theirs, the error names the file and the number of the entry."""
    from palisade.catalog.errors import CatalogError
    from palisade.catalog.segment_json import record_from

    for number, each in enumerate(given, 1):
        try:
            record_from(data_source, each)
        except CatalogError as error:
            failure = failure_of(error, ())
            if failure is None:
                raise
            session.fail(replace(failure, message=f"{file}, entry {number}: {failure.message}; nothing was published"))


@segments.command("list")
@click.argument("data_source", default="")
@client_options
def list_(session: CliSession, data_source: str) -> None:
    """List the data sources, or the segments of DATA_SOURCE.

    States: served, missing (no node serves it; queries fail), loading (not served yet), unserved (replication factor
    0), pending (its publication is not finished), overshadowed (by a newer version), unused, realtime (its node still
    receives rows; palisade segments realtime list shows their number).
    """
    found = session.call(lambda client: client.segments_list(data_source))
    if not data_source:
        names = [(name,) for name in found["data_sources"]]
        session.rows(found, ("data source",), names, none="there is no data source with segments")
        return
    rows = [
        (each["segment"], each["state"], each["replicas"], each["rows"], " ".join(each["nodes"]))
        for each in map(recorded, found["segments"])
    ]
    session.rows(found, LIST_HEADER, rows, wraps=["segment"], none=f"there is no segment of data source {data_source}")


@segments.command()
@click.argument("segment", type=NAME)
@client_options
def show(session: CliSession, segment: str) -> None:
    """Print the record of a SEGMENT, its state and its nodes."""
    found = session.call(lambda client: client.segment(segment))
    width = max(map(len, found))
    session.answer(found, "\n".join(f"{name:<{width}}  {text(value)}" for name, value in recorded(found).items()))


def recorded(shape: dict[str, Any]) -> dict[str, Any]:
    """For people: `-` where the record of a growing segment has 0 or an empty text, because only its node knows."""
    grows = shape.get("ingester") and not shape["digest"]
    return {**shape, **dict.fromkeys(("rows", "size_bytes", "digest"), UNKNOWN)} if grows else shape


def text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


@segments.command()
@click.argument("data_source", type=NAME)
@click.option("--from", "start", required=True, type=read_moment, metavar="TIME", help="Such as 2013-03-01, in UTC.")
@click.option("--to", "end", required=True, type=read_moment, metavar="TIME", help="The end, which is excluded.")
@ON_MISSING
@client_options
def lookup(session: CliSession, data_source: str, start: str, end: str, on_missing: str) -> None:
    """Print which nodes serve the segments of an interval.

    Fails if a segment that queries count on has no server. With --on-missing=allow it prints only the segments that
    have a server; warn also names missing segments on stderr. The list of missing segments is in the output of --json.
    """
    found = session.call(lambda client: client.segments_lookup(data_source, start, end, on_missing=on_missing))
    rows = [(each["segment"], each["from"], each["to"], " ".join(each["nodes"])) for each in found["segments"]]
    none = f"no node serves a segment of data source {data_source} in this interval"
    session.rows(found, PARTS_HEADER, rows, wraps=["segment"], omits=["from", "to"], none=none)
    if found["missing"] and on_missing == "warn":
        first = ", ".join(found["missing"][:SHOWN])
        more = f" and {len(found['missing']) - SHOWN} more" if len(found["missing"]) > SHOWN else ""
        click.echo(f"palisade: {found['warning']}: {first}{more}", err=True)


@segments.command("mark-unused")
@click.argument("data_source", type=NAME)
@click.argument("names", metavar="[SEGMENT]...", nargs=-1, type=NAME)
@FROM
@TO
@client_options
def mark_unused(
    session: CliSession, data_source: str, names: tuple[str, ...], start: str | None, end: str | None
) -> None:
    """Exclude segments from all queries.

    Either the named segments, or all segments between --from and --to.
    """
    if bool(names) == bool(start or end) or bool(start) != bool(end):
        raise click.UsageError("give either names of segments, or both --from and --to")
    changed = session.call(
        lambda client: client.segments_mark_unused(data_source, segments=names, start=start or "", end=end or "")
    )
    session.answer({"changed": changed}, f"{counted(len(changed), 'segment')} marked unused")


@segments.command("set-replicas")
@click.argument("data_source", type=NAME)
@click.argument("replicas", type=WholeNumber(0, 64))
@click.argument("names", metavar="[SEGMENT]...", nargs=-1, type=NAME)
@FROM
@TO
@client_options
def set_replicas(
    session: CliSession, data_source: str, replicas: int, names: tuple[str, ...], start: str | None, end: str | None
) -> None:
    """Set the replication factor of segments.

    Of the named segments, of those in an interval, or of all segments of DATA_SOURCE.
    0: lookups list the segments as unserved and do not fail for them. palisade segments assign moves the copies.
    """
    if (names and (start or end)) or bool(start) != bool(end):
        raise click.UsageError("give either names of segments, or both --from and --to, or neither")

    async def run(client: Any) -> tuple[list[str], str | None]:
        changed = await client.segments_set_replicas(
            data_source, replicas, segments=names, start=start or "", end=end or ""
        )
        return changed, await too_few_keepers(client, replicas, session.deadline_s) if not session.as_json else None

    changed, remark = session.call(run)
    session.answer(
        {"changed": changed}, f"{counted(len(changed), 'segment')} changed to {counted(replicas, 'replica')}"
    )
    if remark is not None:
        session.note(remark)


@segments.command("reset-loaded")
@click.argument("data_source", type=NAME)
@client_options
def reset_loaded(session: CliSession, data_source: str) -> None:
    """Stop counting on segments until nodes announce them.

    For data that is permanently lost: queries no longer fail for segments that no node serves.
    """
    changed = session.call(lambda client: client.segments_reset_loaded(data_source))
    text = f"queries no longer count on {counted(len(changed), 'segment')} until nodes announce them"
    session.answer({"changed": changed}, text)
