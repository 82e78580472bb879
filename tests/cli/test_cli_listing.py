"""palisade ls, get of several keys, and the formats of output (issue 16)."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from palisade.cli.fencing import holder_row
from palisade.cli.main import main
from palisade.client import Client
from palisade.metastore.requests import Range
from palisade.metastore.results import RangeResult
from palisade.raftgroup.errors import Unavailable
from palisade.topology.table_rows import node_rows as topology_rows
from tests.support.cli_node import CliNode, cli_node

Run = Callable[..., Result]
ls_module: Any = importlib.import_module("palisade.cli.ls")
KEYS = ("/a", "/a/1", "/a/2", "/a/deep/x", "/a/deep/y", "/b", "/c/")


@pytest.fixture(scope="module")
def node() -> Iterator[CliNode]:
    with cli_node() as node:
        for key in KEYS:
            CliRunner().invoke(main, ["put", key, f"v{key}", "--endpoints", node.endpoint])
        yield node


@pytest.fixture
def run(node: CliNode) -> Run:
    def invoke(*arguments: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, arguments, env={"PALISADE_ENDPOINTS": node.endpoint})
        assert result.exit_code == exit_code, result.output
        return result

    return invoke


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("", ["/"]),
        ("/", ["/a", "/a/", "/b", "/c/"]),
        ("/a/", ["/a/1", "/a/2", "/a/deep/"]),
        ("/a/d", ["/a/deep/"]),
        ("/a/deep/", ["/a/deep/x", "/a/deep/y"]),
        ("/none/", []),
    ],
)
@pytest.mark.parametrize("page", [1, 2, 1_000])
def test_ls_lists_one_level(
    run: Run, monkeypatch: pytest.MonkeyPatch, prefix: str, names: list[str], page: int
) -> None:
    monkeypatch.setattr(ls_module, "PAGE", page)
    assert run("ls", prefix).stdout.splitlines() == names


def test_ls_prints_each_page_at_once_and_no_node_counts_the_rest(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`palisade ls` of 60,000 keys took 10 s and was silent until the end, because the node counted the remaining keys
    for each page (issue 16)."""
    asked, read = list[bool](), Client._read

    async def first_page_only(self: Client, request: Range, timeout_s: float | None = None) -> RangeResult:
        asked.append(request.exact_count)
        if len(asked) > 1:
            raise Unavailable("the node was stopped")
        return await read(self, request, timeout_s)

    monkeypatch.setattr(ls_module, "PAGE", 2)
    monkeypatch.setattr(Client, "_read", first_page_only)
    done = run("ls", "/a/", exit_code=3)
    assert (done.stdout, asked) == ("/a/1\n/a/2\n", [False, False])
    asked.clear()
    assert run("ls", "/a/", "--json", exit_code=3).stdout == ""


def test_ls_recursive_lists_all_keys(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("ls", "/", "--recursive").stdout.splitlines() == sorted(KEYS)
    assert json.loads(run("ls", "/a/", "--json").stdout)["names"] == ["/a/1", "/a/2", "/a/deep/"]
    assert run("ls", "/b", "-o", "csv").stdout == "name\n/b\n"


@pytest.mark.parametrize(
    ("command", "note"),
    [
        (("ls", "/none"), "palisade: no key begins with /none\n"),
        (("get", "/none", "--prefix"), "palisade: no key begins with /none\n"),
        (("get", "/none", "/nonf"), "palisade: no key is in this range\n"),
        (("get", "/nonf", "/none"), "palisade: no key is in this range: END is not after KEY\n"),
        (("user", "list"), "palisade: there is no user\n"),
        (("role", "list"), "palisade: there is no role\n"),
        (("catalog", "list", "tables"), "palisade: there is no table\n"),
        (("catalog", "list", "tables", "--below", "plant"), "palisade: there is no table at or below plant\n"),
        (("catalog", "list", "users"), "palisade: there is no user\n"),
        (("catalog", "list", "ttl"), "palisade: there is no TTL rule\n"),
        (("catalog", "list", "template-paths"), "palisade: there is no path with a template\n"),
        (("catalog", "procedures"), "palisade: there is no procedure\n"),
        (("catalog", "procedures", "--open"), "palisade: there is no procedure that has not ended\n"),
        (("lease", "list"), "palisade: there is no lease\n"),
        (("activation", "list"), "palisade: there is no role with a primary and a backup\n"),
        (("ls", "/a"), ""),
        (("get", "/a", "--prefix", "--json"), ""),
        (("ls", "/none", "--json"), ""),
    ],
)
def test_terminal_has_a_note_if_there_is_nothing_to_list(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], note: str
) -> None:
    """A mistyped prefix printed nothing; then the header of a table stood above the note."""
    assert run(*command).stderr == ""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    done = run(*command)
    assert (done.stderr, bool(done.stdout)) == (note, not note or "--json" in command)


def test_header_remains_for_a_program_that_reads_an_empty_list(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "click.testing._NamedTextIOWrapper.isatty", lambda stream: stream.name == "<stderr>", raising=False
    )
    done = run("role", "list")
    assert (done.stderr, done.stdout.count("\t") > 0) == ("palisade: there is no role\n", True)
    done = run("get", "/none", "--prefix", "-o", "csv")
    assert (done.stderr, done.stdout) == ("", "key,value,version,revision\n")


def test_get_prints_a_range_like_range(run: Run) -> None:
    for options in (["/a/", "--prefix"], ["/a", "/b"], ["/b", "--from-key"], ["", "--prefix", "--limit", "2"]):
        assert run("get", *options).stdout == run("range", *options).stdout != ""
        assert run("get", *options, "--json").stdout == run("range", *options, "--json").stdout
    assert run("get", "/a/", "--prefix", "--count-only").stdout == "4\n"
    assert run("get", "/none/", "--prefix").stdout == "key\tvalue\tversion\trevision\n"


def test_keys_and_values_that_are_not_text_are_hexadecimal(run: Run) -> None:
    r"""They were `\xff\x01`, which is also the text of another key (issue 16, 13)."""
    run("put", os.fsdecode(b"\xff\x01"), os.fsdecode(b"\xfe\n"))
    run("put", "/lines", "one\ntwo")
    assert "0xff01" in run("ls").stdout
    shown = run("get", "--prefix", "").stdout
    assert ("0xff01" in shown, "0xfe0a" in shown, "one\\ntwo" in shown) == (True, True, True)


def test_output_format_is_json_csv_or_table(run: Run) -> None:
    assert run("get", "/a", "-o", "json").stdout == run("get", "/a", "--json").stdout
    rows = list(csv.reader(io.StringIO(run("get", "/a/deep/", "--prefix", "-o", "csv").stdout)))
    assert rows[0] == ["key", "value", "version", "revision"]
    assert [row[:3] for row in rows[1:]] == [["/a/deep/x", "v/a/deep/x", "1"], ["/a/deep/y", "v/a/deep/y", "1"]]
    assert run("get", "/a", "-o", "csv").stdout.startswith("key,value,version,revision\n/a,v/a,1,")
    assert run("put", "/z", "x, y", "-o", "csv").stdout.splitlines()[0] == "revision"
    run("del", "/z")
    assert run("status", "-o", "csv").stdout.splitlines()[0].startswith("node,role,")
    assert run("get", "/a", "-o", "table").stdout == "v/a"


def test_numbers_in_csv_have_no_separators() -> None:
    """`palisade topology -o csv` had "4,810" in a column of numbers, `status -o csv` 4810."""
    member = {"id": "n1", "role": "voter", "standing": "active", "incarnation": 1, "recovered_revision": 4810}
    found = {"physical": [], "logical": [{**member, "addresses": {}}]}
    assert topology_rows(found)[0][5] == "4,810"
    assert topology_rows(found, separators=False)[0][5] == "4810"
    holder = {"node": "n1", "incarnation": 1, "staged": 4829, "behind": 1000, "heard_ms": 5, "until_ms": 7}
    state = {"promised": False, "leaving": False, "reported_state": "active"}
    assert holder_row({**holder, **state})[2:4] == ["4,829", "1,000"]
    assert holder_row({**holder, **state}, separators=False)[2:4] == ["4829", "1000"]


def test_two_output_formats_are_wrong_usage(run: Run) -> None:
    assert "give either --json or -o csv" in run("get", "/a", "--json", "-o", "csv", exit_code=2).stderr
    run("get", "/a", "-o", "xml", exit_code=2)
