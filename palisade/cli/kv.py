"""palisade put, get, del, range, compact."""

from __future__ import annotations

from typing import Any

import click

from palisade.cli.fenced import get_at, key_value, range_at
from palisade.cli.options import at_option, client_options, read_bytes, read_lease
from palisade.cli.printing import print_bytes, print_json, print_rows, readable
from palisade.cli.session import REFUSED, CliSession, Failure
from palisade.metastore.requests import FROM_KEY, SortOrder, SortTarget
from palisade.metastore.results import KeyValue
from palisade.wire import json_results as shapes

FILE_BYTES_MAX = 64 * 1024 * 1024
ORDERS = {"ascend": SortOrder.ASCEND, "descend": SortOrder.DESCEND}
TARGETS = {target.name.lower(): target for target in SortTarget}


@click.command()
@click.argument("key", type=read_bytes)
@click.argument("value", type=read_bytes, required=False)
@click.option("--file", "-f", type=click.File("rb"), help="Take the value from this file; - is standard input.")
@click.option("--lease", type=read_lease, metavar="ID", help="Attach the key to this lease.")
@click.option("--prev-kv", is_flag=True, help="Show what was there before.")
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
        text = f"{file.name} is larger than {FILE_BYTES_MAX} bytes, the largest value that a node can be set to take"
        session.fail(Failure(REFUSED, "value-too-large", text, False))
    result = session.call(lambda client: client.put(key, content, lease=lease or 0, prev_kv=prev_kv))
    before = f", before: {readable(result.prev_kv.value)}" if result.prev_kv else ""
    session.answer(shapes.put_shape(result), f"revision {result.revision}{before}")


@click.command()
@click.argument("key", type=read_bytes)
@click.option("--revision", type=click.IntRange(0), default=0, help="Read at this revision; 0 is the newest.")
@click.option("--serializable", is_flag=True, help="Read what the asked node has, without asking the leader.")
@at_option
@client_options
def get(session: CliSession, key: bytes, revision: int, serializable: bool, at: str | None) -> None:
    """Print the value of KEY, byte for byte. Exit code 1 if there is none.

    With --at: from the vault of that node, through its fence: linearizable for strict keys, without a hop.
    """
    if at is not None:
        refuse_with_at(revision, serializable)
        fenced = get_at(session, at, key)
        if session.as_json:
            print_json(fenced)
        else:
            print_bytes(key_value(fenced["kv"]).value)
        return
    result = session.call(lambda client: client.range(key, revision=revision, serializable=serializable))
    if not result.kvs:
        where = f"at revision {revision}" if revision else f"(revision {result.revision})"
        session.fail(Failure(REFUSED, "key-not-found", f"there is no key {readable(key)} {where}", False))
    if session.as_json:
        print_json({"revision": result.revision, "kv": shapes.key_value(result.kvs[0])})
    else:
        print_bytes(result.kvs[0].value)


@click.command("del")
@click.argument("key", type=read_bytes)
@click.argument("end", type=read_bytes, default="")
@click.option("--prefix", is_flag=True, help="Everything that begins with KEY.")
@click.option("--prev-kv", is_flag=True, help="Show what was there before.")
@client_options
def delete(session: CliSession, key: bytes, end: bytes, prefix: bool, prev_kv: bool) -> None:
    """Delete KEY, or the keys from KEY up to, not including, END, or with --prefix."""
    range_end = end_of_range(end, prefix)
    result = session.call(lambda client: client.delete(key, range_end, prefix=prefix, prev_kv=prev_kv))
    lines = [f"deleted {result.deleted}, revision {result.revision}"]
    lines += [f"{readable(kv.key)}\t{readable(kv.value)}" for kv in result.prev_kvs]
    session.answer(shapes.delete_shape(result), "\n".join(lines))


@click.command("range")
@click.argument("key", type=read_bytes)
@click.argument("end", type=read_bytes, default="")
@click.option("--prefix", is_flag=True, help="Everything that begins with KEY.")
@click.option("--from-key", is_flag=True, help="Everything from KEY on.")
@click.option("--limit", type=click.IntRange(0), default=0, help="Print so many at most; 0 is all.")
@click.option("--revision", type=click.IntRange(0), default=0, help="Read at this revision; 0 is the newest.")
@click.option("--keys-only", is_flag=True, help="Leave the values away.")
@click.option("--count-only", is_flag=True, help="Only say how many there are.")
@click.option("--sort", type=click.Choice(list(TARGETS)), default="key", show_default=True)
@click.option("--order", type=click.Choice(list(ORDERS)), help="The order of the keys if not given.")
@click.option("--serializable", is_flag=True, help="Read what the asked node has, without asking the leader.")
@at_option
@client_options
def range_(
    session: CliSession, key: bytes, end: bytes, prefix: bool, from_key: bool, at: str | None, **options: Any
) -> None:
    """Print the keys from KEY up to, not including, END.

    \b
    palisade range /catalog/airlines/ --prefix
    palisade range /catalog/planes/ --prefix --limit 5 --sort mod --order descend

    With --at: from the vault of that node, through its fence, at one revision.
    """
    range_end = end_of_range(end, prefix, from_key)
    if at is not None:
        limit, keys_only = options.pop("limit"), options.pop("keys_only")
        refuse_with_at(*(value for name, value in options.items() if name != "sort"), options["sort"] != "key")
        show_range_at(session, range_at(session, at, key, range_end, prefix=prefix, limit=limit, keys_only=keys_only))
        return
    target, order = options.pop("sort"), options.pop("order")
    if order is not None or target != "key":
        options |= {"sort_target": TARGETS[target], "sort_order": ORDERS[order or "ascend"]}
    result = session.call(lambda client: client.range(key, range_end, prefix=prefix, **options))
    if session.as_json:
        print_json(shapes.range_shape(result))
    elif options["count_only"]:
        print(result.count)
    else:
        print_rows(["key", "value", "version", "revision"], [row(kv) for kv in result.kvs])
        if result.more:
            click.echo(f"{len(result.kvs)} of {result.count}; --limit cut the rest off", err=True)


@click.command()
@click.argument("revision", type=click.IntRange(1))
@client_options
def compact(session: CliSession, revision: int) -> None:
    """Forget history below REVISION. Newest values stay; reads and watches below it are refused from now on."""
    result = session.call(lambda client: client.compact(revision))
    text = f"history before revision {result.minimal_revision} is gone (store at {result.revision})"
    session.answer(shapes.compact_shape(result), text)


def end_of_range(end: bytes, prefix: bool, from_key: bool = False) -> bytes:
    """The end of the range that is meant, but for a prefix. Raises UsageError when two ends are given."""
    if sum((bool(end), prefix, from_key)) > 1:
        raise click.UsageError("give only one of END, --prefix and --from-key")
    return FROM_KEY if from_key else end


def refuse_with_at(*options: Any) -> None:
    """Raises UsageError."""
    if any(options):
        raise click.UsageError(
            "--at reads the vault of one node, which has no past and no order but that of the keys: leave away "
            "--revision, --serializable, --count-only, --sort and --order"
        )


def show_range_at(session: CliSession, found: dict[str, Any]) -> None:
    if session.as_json:
        print_json(found)
        return
    print_rows(["key", "value", "version", "revision"], [row(key_value(kv)) for kv in found["kvs"]])
    if found["more"]:
        click.echo(f"the first {len(found['kvs'])}; --limit cut the rest off", err=True)


def row(kv: KeyValue) -> list[Any]:
    return [readable(kv.key), readable(kv.value), kv.version, kv.mod_revision]
