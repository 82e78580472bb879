"""palisade txn."""

from __future__ import annotations

from typing import Any

import click

from palisade.cli.input_file import InputFile
from palisade.cli.old_spellings import note
from palisade.cli.options import client_options
from palisade.cli.printing import readable
from palisade.cli.session import CliSession
from palisade.cli.txn_form import OLD_SECTIONS, FormError
from palisade.cli.txn_json import parse_json
from palisade.cli.txn_text import parse_text
from palisade.metastore.requests import Txn
from palisade.metastore.results import DeleteRangeResult, PutResult, RangeResult, TxnResult
from palisade.wire import json_results as shapes

CHARACTERS_MAX = 256 * 1024 * 1024
"""Of FILE: twice the largest value of --limit-request-bytes."""


@click.command()
@click.argument("file", type=InputFile("r", encoding="utf-8", errors="surrogateescape"), default="-")
@client_options
def txn(session: CliSession, file: Any) -> None:
    """Run a transaction from FILE or standard input.

    If every compare holds, all of `success` is executed, else all of `failure`.

    \b
    compare
        version /leader = 0
    success
        put /leader n1
        put "/leader/since" 2013-01-01
    failure
        get /leader

    \b
    Targets: version, create, mod, lease (numbers), value (text).
    Relations: = != < >
    Operations: put KEY VALUE [lease=N], delete KEY, delete-prefix PREFIX,
    get KEY, get-prefix PREFIX
    A missing key has version 0. Words with blanks are quoted; # begins a comment.

    The same in JSON, which also allows binary values (key_base64, value_base64) and nested transactions:

    \b
    {"compare": [{"target": "version", "key": "/leader",
                  "relation": "=", "operand": 0}],
     "success": [{"put": {"key": "/leader", "value": "n1"}},
                 {"txn": {"success": []}}],
     "failure": [{"range": {"key": "/leader"}},
                 {"delete": {"key": "/old/", "prefix": true}}]}
    """
    try:
        old: set[str] = set()
        request = parse_txn(bounded(file), old)
    except FormError as error:
        raise click.UsageError(f"{getattr(file, 'name', 'standard input')}: {error}") from None
    if not session.as_json:
        for name in sorted(old):
            click.echo(f"palisade: {note(name, OLD_SECTIONS[name])}", err=True)
    result = session.call(lambda client: client.txn(request.compare, request.success, request.failure))
    session.answer(shapes.txn_shape(result), "\n".join(lines_of(result)))


def bounded(file: Any) -> str:
    """The text of the file. Raises FormError before it fills the memory."""
    text: str = file.read(CHARACTERS_MAX + 1)
    if len(text) > CHARACTERS_MAX:
        raise FormError(f"has more than {CHARACTERS_MAX} characters, which no cluster accepts in one request; split it")
    return text


def parse_txn(text: str, old: set[str] | None = None) -> Txn:
    """Both forms; JSON begins with '{'. `old`: gets the old names of sections that are used. Raises FormError."""
    return (parse_json if text.lstrip().startswith("{") else parse_text)(text, set() if old is None else old)


def lines_of(result: TxnResult, indent: str = "") -> list[str]:
    branch, held = ("success", "every compare held") if result.succeeded else ("failure", "a compare did not hold")
    lines = [f"{indent}{branch} ({held}), revision {result.revision}"]
    for each in result.results:
        lines += operation_lines(each, indent + "    ")
    return lines


def operation_lines(result: PutResult | DeleteRangeResult | RangeResult | TxnResult, indent: str) -> list[str]:
    if isinstance(result, TxnResult):
        return lines_of(result, indent)
    if isinstance(result, PutResult):
        return [f"{indent}put"]
    if isinstance(result, DeleteRangeResult):
        return [f"{indent}deleted {result.deleted}"]
    return [f"{indent}{readable(kv.key)}\t{readable(kv.value)}" for kv in result.kvs] or [f"{indent}no key"]
