"""A large range is printed in the parts in which it arrives; nothing was printed before all of it had arrived."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from palisade.cli.http_request import run_or_fail
from palisade.cli.large_table import LargeTable
from palisade.cli.main import main
from palisade.cli.node_waits import NodeWaits
from palisade.cli.range_output import RangeOutput
from palisade.cli.session import CliSession
from palisade.cli.table import made
from palisade.client import Client
from palisade.metastore.results import KeyValue, RangeResult
from palisade.raftgroup.errors import Unavailable
from palisade.wire import json_results as shapes
from tests.support.cli_node import CliNode, cli_node

Run = Callable[..., Result]
KEYS = 10
PART = 3


@pytest.fixture(scope="module")
def node() -> Iterator[CliNode]:
    with cli_node() as node:
        for number in range(KEYS):
            CliRunner().invoke(main, ["put", f"/p/{number}", f"v,{number}", "--endpoints", node.endpoint])
        yield node


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The node ends an answer after `PART` keys. Has the size of each part that was received."""
    sizes = list[int]()
    whole = Client._read

    async def read(self: Client, *arguments: Any, **named: Any) -> RangeResult:
        found = await whole(self, *arguments, **named)
        sizes.append(len(found.kvs))
        return found

    monkeypatch.setattr("palisade.service.range_pages.PAGE_KEYS_FIRST", PART)
    monkeypatch.setattr("palisade.api.stream.connection.ANSWER_BYTES_MAX", 1)
    monkeypatch.setattr(Client, "_read", read)
    return sizes


@pytest.mark.parametrize("options", [(), ("--json",), ("-o", "csv"), ("--limit", "7"), ("--limit", "7", "--json")])
def test_parts_make_up_the_output(node: CliNode, options: tuple[str, ...], request: pytest.FixtureRequest) -> None:
    words = ["get", "/p/", "--prefix", "--endpoints", node.endpoint, *options]
    whole = CliRunner().invoke(main, words)
    sizes = request.getfixturevalue("in_parts")
    done = CliRunner().invoke(main, words)
    assert sizes == ([3, 3, 1] if "7" in options else [3, 3, 3, 1])
    assert (done.exit_code, done.stderr) == (0, whole.stderr)
    if "--json" in options:
        assert json.loads(done.stdout) == json.loads(whole.stdout)
    else:
        assert done.stdout == whole.stdout
    assert "v,6" in done.stdout


def test_every_part_has_the_columns_of_the_first_one_on_a_terminal(
    node: CliNode, in_parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    done = CliRunner().invoke(main, ["get", "/p/", "--prefix", "--endpoints", node.endpoint], env={"COLUMNS": "80"})
    lines = click.unstyle(done.stdout).splitlines()
    assert [line.split("│")[1].strip() for line in lines if line.startswith("│")] == [f"/p/{n}" for n in range(KEYS)]
    assert len({len(line) for line in lines}) == 1
    assert sum("revision" in line for line in lines) == len(in_parts)


def test_failure_after_some_parts_is_reported_with_their_extent(node: CliNode, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pages(*_: Any, **__: Any) -> AsyncIterator[RangeResult]:
        yield RangeResult(9, (KeyValue(b"/p/0", b"v", 1, 1, 1, 0), KeyValue(b"/p/1", b"v", 2, 2, 1, 0)), True, 10)
        raise Unavailable("no leader")

    monkeypatch.setattr(Client, "range_pages", pages)
    done = CliRunner().invoke(main, ["get", "/p/", "--prefix", "--endpoints", node.endpoint])
    assert (done.exit_code, len(done.stdout.splitlines())) == (3, 3)
    assert "shows which nodes answer; the output ends after the first 2 keys, and is not complete" in done.stderr


@pytest.mark.parametrize("options", [(), ("--json",), ("-o", "csv")])
def test_ctrl_c_ends_the_output_within_a_part(
    node: CliNode, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """On a slow terminal, the output went on for up to 50,000 keys, and did not say that it was incomplete."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kvs = tuple(KeyValue(f"/p/{number:05}".encode(), b"v", 9, 9, 1, 0) for number in range(5_000))

    async def pages(*_: Any, **__: Any) -> AsyncIterator[RangeResult]:
        yield RangeResult(9, kvs, False, len(kvs))

    def interrupted(self: RangeOutput, *arguments: Any, **named: Any) -> None:
        whole(self, *arguments, **named)
        os.kill(os.getpid(), signal.SIGINT)

    whole = RangeOutput._print_piece
    monkeypatch.setattr(Client, "range_pages", pages)
    monkeypatch.setattr(RangeOutput, "_print_piece", interrupted)
    done = CliRunner().invoke(main, ["get", "/p/", "--prefix", "--endpoints", node.endpoint, *options])
    assert done.exit_code == 130
    assert "/p/00999" in done.stdout
    assert "/p/01000" not in done.stdout
    text = "the output ends after the first 1000 keys, and is not complete"
    if "--json" in options:
        error = {"code": "output-incomplete", "message": text, "retry": True}
        assert json.loads(done.stderr) == {"error": error}, "it was empty"
    else:
        assert done.stderr == f"palisade: {text}\n"


def test_range_of_one_part_and_many_keys_is_printed_in_pieces(node: CliNode, monkeypatch: pytest.MonkeyPatch) -> None:
    kvs = tuple(KeyValue(f"/p/{number:05}".encode(), b"v", 9, 9, 1, 0) for number in range(2_500))

    async def pages(*_: Any, **__: Any) -> AsyncIterator[RangeResult]:
        yield RangeResult(9, kvs, False, len(kvs))

    monkeypatch.setattr(Client, "range_pages", pages)
    words = ["get", "/p/", "--prefix", "--endpoints", node.endpoint]
    shape = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert shape == shapes.range_shape(RangeResult(9, kvs, False, len(kvs)))
    lines = CliRunner().invoke(main, words).stdout.splitlines()
    assert [line.partition("\t")[0] for line in lines] == ["key", *(kv.key.decode() for kv in kvs)]
    assert len(CliRunner().invoke(main, [*words, "-o", "csv"]).stdout.splitlines()) == 2_501


CELLS = ["/m/0001", "é" * 70, "日本" * 25, "a/b" * 30, "", "w" * 65, "two words " * 8, "x\ty", "12"]


@pytest.mark.parametrize("width", [8, 17, 40])
@pytest.mark.parametrize("cut", [None, "value"])
def test_large_table_looks_like_the_table_of_rich(width: int, cut: str | None) -> None:
    """The latter takes half a millisecond for each row: 100,000 keys took 39 s."""
    header, widths = ["key", "value"], {0: width, 1: width}
    rows = [[one, two] for one in CELLS for two in CELLS]
    places = {1} if cut else set[int]()
    texts = []
    for table in (made(header, rows, widths, cut), LargeTable(header, rows, widths, places)):
        console = Console(file=io.StringIO(), width=200)
        table.caption = "omitted here: x"
        console.print(table, markup=False, crop=False)
        texts.append(console.file.getvalue().rstrip("\n"))  # type: ignore[attr-defined]
    assert texts[1].splitlines()[:-1] == texts[0].splitlines()[:-1]


def test_notice_shows_that_an_answer_is_being_received() -> None:
    """It was "no answer yet" from a healthy node while a large answer was on its way."""
    client: Any = SimpleNamespace(writer_waits_for=None, trouble=None, connected_to="n1", receiving_bytes=1_500_000)
    assert NodeWaits().reason(client) == "receiving the answer of n1, 1.5 MB so far"
    client.receiving_bytes = 10
    assert NodeWaits().reason(client) == "n1 has not finished the request"


class Large:
    """A result whose text would take long to make. `formatted`: how often it was made."""

    formatted = 0

    def __repr__(self) -> str:
        Large.formatted += 1
        return "large"


def test_result_of_a_command_is_not_formatted_when_its_event_loop_ends() -> None:
    """The text of a range of 400,000 keys was made twice, and discarded: two seconds without a notice."""

    async def read() -> Large:
        return Large()

    session = CliSession([], 1.0, False)
    assert type(session.run(read())) is type(run_or_fail(session, read())) is Large
    assert Large.formatted == 0
