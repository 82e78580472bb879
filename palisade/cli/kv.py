"""palisade put, get, range, del, compact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from palisade.base.counted import counted
from palisade.base.key_text import key_text
from palisade.cli.fenced import get_at, key_value, range_at
from palisade.cli.input_file import InputFile
from palisade.cli.ls import none_begins_with
from palisade.cli.numbers import NumberCommand, WholeNumber
from palisade.cli.options import at_option, client_options, read_bytes, read_lease, serializable_option
from palisade.cli.printing import print_bytes, print_json, readable
from palisade.cli.range_output import HEADER, RangeOutput, row
from palisade.cli.session import INTERRUPTED, REFUSED, CliSession, Failure, failure_of
from palisade.metastore.requests import FROM_KEY, SortOrder, SortTarget
from palisade.wire import json_results as shapes

FILE_BYTES_MAX = 64 * 1024 * 1024
ORDERS = {"ascend": SortOrder.ASCEND, "descend": SortOrder.DESCEND}
TARGETS = {target.name.lower(): target for target in SortTarget}
FIRST_KEY = b"\0"

Command = Callable[..., None]


@click.command()
@click.argument("key", type=read_bytes)
@click.argument("value", type=read_bytes, required=False)
@click.option("--file", "-f", type=InputFile("rb"), help="Read the value from this file; - is standard input.")
@click.option("--lease", type=read_lease, metavar="ID", help="Attach the key to this lease.")
@click.option("--prev-kv", is_flag=True, help="Print the previous value.")
@client_options
def put(session: CliSession, key: bytes, value: bytes | None, file: Any, lease: int | None, prev_kv: bool) -> None:
    """Write VALUE under KEY.

    \b
    palisade put /config/mode fast
    palisade put /config/schema --file schema.json
    """
    if (value is None) == (file is None):
        raise click.UsageError("give either VALUE or --file")
    content = value if value is not None else file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        text = f"{file.name} is larger than {FILE_BYTES_MAX} bytes, the largest value that a node can be configured for"
        session.fail(Failure(REFUSED, "value-too-large", text, False))
    result = session.call(lambda client: client.put(key, content, lease=lease or 0, prev_kv=prev_kv))
    before = f", before: {readable(result.prev_kv.value)}" if result.prev_kv else ""
    session.answer(shapes.put_shape(result), f"revision {result.revision}{before}")


def range_options(command: Command) -> Command:
    for option in (
        at_option,
        serializable_option,
        click.option("--order", type=click.Choice(list(ORDERS)), help="Sort order.  [default: ascend]"),
        click.option("--sort", type=click.Choice(list(TARGETS)), default="key", show_default=True, help="Sort field."),
        click.option("--count-only", is_flag=True, help="Print only the number of keys."),
        click.option("--keys-only", is_flag=True, help="Omit the values."),
        click.option("--revision", type=WholeNumber(0), default=0, help="Read at this revision; 0 is the newest."),
        click.option("--limit", type=WholeNumber(0), default=0, help="Maximum number of keys; 0 is no limit."),
        click.option("--from-key", is_flag=True, help="All keys from KEY on."),
        click.option("--prefix", is_flag=True, help="All keys that begin with KEY."),
        click.argument("end", type=read_bytes, default=""),
        click.argument("key", type=read_bytes),
    ):
        command = option(command)
    return command


@click.command()
@range_options
@client_options
def get(session: CliSession, key: bytes, end: bytes, prefix: bool, from_key: bool, **options: Any) -> None:
    """Print the value of KEY, byte for byte.

    The exit code is 1 if the key does not exist.

    With END, --prefix or --from-key: print the keys of that range, END excluded.

    \b
    palisade get /config/mode
    palisade get /catalog/airlines/ --prefix
    palisade get /catalog/planes/ --prefix --limit 5 --sort mod --order descend

    With --at: from the vault of that node, through its fence: linearizable for strict keys, without a network hop to
    another node.
    """
    key = first_key(session, key, end, prefix, from_key)
    if end or prefix or from_key or options["count_only"] or options["keys_only"]:
        show_range(session, key, end, prefix, from_key, **options)
        return
    if options["at"] is not None:
        get_from_vault(session, key, **options)
        return
    revision, serializable = options["revision"], options["serializable"]
    result = session.call(lambda client: client.range(key, revision=revision, serializable=serializable))
    if not result.kvs:
        where = f"at revision {revision}" if revision else f"(revision {result.revision})"
        session.fail(Failure(REFUSED, "key-not-found", f"there is no key {key_text(key)} {where}", False))
    kv = result.kvs[0]
    if session.as_json:
        print_json({"revision": result.revision, "kv": shapes.key_value(kv)})
    elif session.as_csv:
        session.rows({}, HEADER, [row(kv)])
    else:
        print_bytes(kv.value)


def get_from_vault(session: CliSession, key: bytes, *, at: str, **options: Any) -> None:
    refuse_with_at(**options)
    fenced = get_at(session, at, key)
    if session.as_json:
        print_json(fenced)
    elif session.as_csv:
        session.rows({}, HEADER, [row(key_value(fenced["kv"]))])
    else:
        print_bytes(key_value(fenced["kv"]).value)


@click.command("range")
@range_options
@client_options
def range_(session: CliSession, key: bytes, end: bytes, prefix: bool, from_key: bool, **options: Any) -> None:
    """Print the keys from KEY up to END, END excluded.

    The output is that of `palisade get` for a range, also for a single key.

    \b
    palisade range /catalog/airlines/ --prefix

    With --at: from the vault of that node, through its fence, at one revision.
    """
    key = first_key(session, key, end, prefix, from_key)
    show_range(session, key, end, prefix, from_key, **options)


def show_range(
    session: CliSession, key: bytes, end: bytes, prefix: bool, from_key: bool, *, at: str | None, **options: Any
) -> None:
    range_end = end_of_range(end, prefix, from_key)
    none = none_begins_with(key) if prefix else none_in_range(key, range_end)
    if at is not None:
        refuse_with_at(**options)
        limit, keys_only = options["limit"], options["keys_only"]
        found = range_at(session, at, key, range_end, prefix=prefix, limit=limit, keys_only=keys_only)
        session.rows(found, HEADER, [row(key_value(kv)) for kv in found["kvs"]], cut="value", none=none)
        if found["more"]:
            click.echo(f"the first {counted(len(found['kvs']), 'key')}; --limit omitted the others", err=True)
        return
    target, order = options.pop("sort"), options.pop("order")
    if order is not None or target != "key":
        options |= {"sort_target": TARGETS[target], "sort_order": ORDERS[order or "ascend"]}
    if options["count_only"]:
        result = session.call(lambda client: client.range(key, range_end, prefix=prefix, **options))
        session.answer(shapes.range_shape(result), str(result.count))
        return
    show_in_parts(session, key, range_end, none, prefix=prefix, **options)


def show_in_parts(session: CliSession, key: bytes, range_end: bytes, none: str, **options: Any) -> None:
    """Prints each part of the range as soon as it has arrived. `none`: as of `CliSession.rows`."""
    output = RangeOutput(session, options["limit"], none)
    counts = options["limit"] > 0

    def why() -> str | None:
        return f"{output.printed:,} keys received so far" if output.printed else None

    def incomplete() -> str:
        return f"the output ends after the first {counted(output.printed, 'key')}, and is not complete"

    async def show(client: Any) -> None:
        async with session.notice_of(client, why) as erase:
            try:
                async for page in client.range_pages(key, range_end, exact_count=counts, **options):
                    erase()
                    for _ in output.pieces(page):
                        await asyncio.sleep(0)  # Ctrl-C ends the task here
            except Exception as error:
                failure = failure_of(error, session.endpoints, session.source)
                if failure is None or not output.printed:
                    raise
                session.fail(replace(failure, message=f"{failure.message}; {incomplete()}"))

    try:
        session.call(show, notice=False)
    except SystemExit as ended:
        if ended.code == INTERRUPTED and output.printed:
            session.fail(Failure(INTERRUPTED, "output-incomplete", incomplete(), True))
        raise
    if output.more and not session.as_json:
        click.echo(f"{output.printed} of {counted(output.count, 'key')}; --limit omitted the others", err=True)


def none_in_range(key: bytes, range_end: bytes) -> str:
    """`range_end`: a zero byte stands for the end of the keyspace."""
    backwards = b"" < range_end <= key and range_end != bytes(1)
    return f"no key is in this range{': END is not after KEY' if backwards else ''}"


@click.command(cls=NumberCommand)
@click.argument("revision", type=WholeNumber(1))
@client_options
def compact(session: CliSession, revision: int) -> None:
    """Remove the history below REVISION. Current values stay; reads and watches below it are refused from then on."""
    result = session.call(lambda client: client.compact(revision))
    text = f"history before revision {result.minimal_revision} is removed (store at {result.revision})"
    if result.minimal_revision < revision:
        text += f"; a pin or a watermark retains the rest, up to revision {revision}, until it ends"
    session.answer(shapes.compact_shape(result), text)


def end_of_range(end: bytes, prefix: bool, from_key: bool = False) -> bytes:
    """The end of the range; empty for a prefix. Raises UsageError if more than one end is given."""
    if sum((bool(end), prefix, from_key)) > 1:
        raise click.UsageError("give only one of END, --prefix and --from-key")
    return FROM_KEY if from_key else end


def first_key(session: CliSession, key: bytes, end: bytes, prefix: bool, from_key: bool) -> bytes:
    """The key at which a read begins. An empty one is the beginning of all keys, as with --at and in etcdctl."""
    if end or from_key:
        return key or FIRST_KEY
    refuse_empty(session, key, prefix)
    return key


def refuse_empty(session: CliSession, key: bytes, prefix: bool) -> None:
    """Fails for an empty KEY without --prefix. The key 0x00, where all keys begin, cannot be typed in a shell."""
    if not key and not prefix:
        session.fail(Failure(REFUSED, "key-empty", "the key is empty; for all keys give '' --prefix", False))


def refuse_with_at(
    *, revision: int, serializable: bool, count_only: bool, sort: str, order: str | None, **_: Any
) -> None:
    """Raises UsageError."""
    if revision or serializable or count_only or order or sort != "key":
        raise click.UsageError(
            "--at reads the vault of one node, which has one revision and is ordered by key: omit --revision, "
            "--serializable, --count-only, --sort and --order"
        )
