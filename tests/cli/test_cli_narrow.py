"""Tables in a terminal of 80 columns: what identifies a row is complete (issue 16, item 7)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from palisade.cli.main import main
from palisade.cli.member import HEADER, member_row
from palisade.cli.scenarios.all import SCENARIOS
from palisade.cli.status_table import status_table
from palisade.cli.supervisor.events import SupervisorEvent
from palisade.cli.supervisor.screen import LiveTable
from palisade.cli.table import ROWS_MAX, kept, layout, stacked
from palisade.service.status import cells, titles
from palisade.topology.table_rows import HEADER as TOPOLOGY
from palisade.topology.table_rows import node_rows
from tests.support.cli_node import cli_node

WIDTH = 80
URLS = [f"http://127.0.0.1:{port}" for port in (8401, 8402, 8403)]


def row(number: int) -> dict[str, Any]:
    fencing = {"incarnation": 1, "lease_age_ms": 300, "applied": 5532, "state": "active"}
    return {
        "id": f"n{number}", "role": "leader" if number == 1 else "follower", "term": 1, "revision": 5532,
        "minimal_revision": 1, "commit_index": 22, "applied_index": 22, "ready": True, "topology": "active",
        "recovery": None, "fence": "active", "released": 5532, "fencing": fencing, "url": URLS[number - 1],
    }  # fmt: skip


def tables(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, **options: Any) -> Iterator[Any]:
    return layout(header, rows, width, **options).tables(rows)


def printed(*renderables: Any, width: int = WIDTH) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    for each in renderables:
        console.print(each, markup=False)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines), lines
    return lines


def test_status_table_keeps_names_roles_and_addresses() -> None:
    lines = printed(status_table([row(1), row(2), row(3)], WIDTH))
    for name, url in zip(("n1 *", "n2", "n3"), URLS, strict=True):
        assert any(name in line and url in line for line in lines), lines
    assert any("omitted here: " in line and "term" in line for line in lines)


def test_status_table_has_every_column_where_there_is_room() -> None:
    lines = printed(status_table([row(1)], 200), width=200)
    assert all(title in lines[1] for title in titles())
    assert "omitted" not in "".join(lines)


def test_live_table_of_up_fits_and_its_line_to_paste_is_not_wrapped() -> None:
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=True, color_system=None)
    line = "export PALISADE_ENDPOINTS=" + ",".join(f"127.0.0.1:{port}" for port in range(8601, 8606))
    with LiveTable(console) as screen:
        screen.show(SupervisorEvent("ready", line))
        screen.status([row(1), row(2), row(3)])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert line in shown
    assert all(url in shown for url in URLS)


def test_live_table_of_a_refused_start_prints_nothing() -> None:
    """An empty line was printed before the error."""
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=True)
    with LiveTable(console):
        pass
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_member_list_puts_columns_below_each_other() -> None:
    rows = [
        member_row({
            "id": f"node-{number}", "role": "voter", "leader": number == 1, "connected": True, "match_index": 123_456,
            "addresses": {name: f"192.168.100.{number}:7{port}01" for name, port in
                          (("peer", 5), ("http", 4), ("stream", 6))},
        })
        for number in (1, 2, 3)
    ]  # fmt: skip
    lines = printed(*tables(HEADER, rows, WIDTH))
    for number in (1, 2, 3):
        of_node = " ".join(line for line in lines if f"node-{number} " in line)
        assert all(f"192.168.100.{number}:7{port}01" in of_node for port in (4, 5, 6))


def test_topology_puts_columns_below_each_other() -> None:
    physical = [{"id": "n1", "state": "alive", "address": "127.0.0.1:8701", "tags": {"http": "127.0.0.1:8401"}}]
    logical = [{
        "id": "n1", "role": "voter", "standing": "active", "incarnation": 12, "recovered_revision": 1_234_567,
        "addresses": {"http": "127.0.0.1:8401"},
    }]  # fmt: skip
    lines = printed(*tables(TOPOLOGY, node_rows({"physical": physical, "logical": logical}), WIDTH))
    assert sum("n1 " in line for line in lines) == 2
    assert any("127.0.0.1:8401" in line for line in lines)
    assert any("127.0.0.1:8701" in line for line in lines)


def test_long_key_is_wrapped_and_its_value_shortened() -> None:
    key, console = "/k" * 60, Console(file=io.StringIO(), width=WIDTH)
    for table in tables(["key", "value", "version"], [[key, "v" * 60, "1"]], WIDTH, cut="value"):
        console.print(table)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= WIDTH
    cell_texts = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert key in "".join(cell_texts)


def test_titles_of_scenarios_wrap_and_are_not_cut() -> None:
    rows = [[one.name, one.case or "-", one.title] for one in SCENARIOS]
    lines = printed(*tables(["scenario", "case", "what it shows"], rows, WIDTH, wraps=["what it shows"]))
    assert max(map(len, lines)) <= WIDTH
    titles = " ".join(line.split("│")[3].strip() for line in lines if line.startswith("│"))
    assert [one.title for one in SCENARIOS if one.title not in titles] == []


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_no_table_is_wider_than_the_terminal(width: int) -> None:
    for table in tables(["name", "a", "b", "c"], [["n" * 30, "x" * 50, "y" * 10, "z"]], width):
        console = Console(file=io.StringIO(), width=width)
        console.print(table)
        assert max(map(len, console.file.getvalue().splitlines())) <= width  # type: ignore[attr-defined]


def test_columns_are_kept_by_importance_and_stacked_in_order() -> None:
    assert kept([5, 5, 5, 5], [3, 0, 1, 2], 26) == [0, 1, 3]
    assert stacked([5, 30, 30, 5], 50) == [[0, 1], [0, 2, 3]]
    assert stacked([60, 60], 50) == [[0, 1]]


def test_piped_tables_begin_with_a_header() -> None:
    with cli_node() as node:
        environ = {"PALISADE_ENDPOINTS": node.endpoint}
        CliRunner().invoke(main, ["put", "/a", "1"], env=environ)
        for command, first in (
            (["range", "/a"], "key\tvalue\tversion\trevision"),
            (["status"], "\t".join(titles())),
            (["member", "list"], "\t".join(HEADER)),
            (["lease", "list"], "lease"),
            (["region", "list"], "name\tprefix\tmode\tpolicy\tdefault\tbuilt in"),
            (["catalog", "list", "tables"], "name\twhat\trevision"),
        ):
            assert CliRunner().invoke(main, command, env=environ).stdout.splitlines()[0] == first
    assert len(cells(row(1))) == len(titles())


def helps(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    context = click.Context(command, info_name=words[-1], terminal_width=WIDTH)
    yield words, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from helps(inner, (*words, name))


def test_help_of_every_command_fits_the_terminal() -> None:
    wide = [
        (" ".join(words), line)
        for words, text in helps(main, ("palisade",))
        for line in text.splitlines()
        if len(line) > WIDTH
    ]
    assert wide == []


def test_long_list_is_shown_in_several_tables_before_all_rows_are_laid_out() -> None:
    """A list of 60,000 keys took 40 s before its first line."""
    rows = [[str(number), "x"] for number in range(2 * ROWS_MAX + 1)]
    found = tables(["key", "value"], rows, WIDTH)
    assert next(found).row_count == ROWS_MAX
    assert [table.row_count for table in found] == [ROWS_MAX, 1]


def test_column_without_any_text_takes_no_table_of_its_own() -> None:
    """`catalog procedures` printed a second table, which had all names and nothing else."""
    header, rows = ["procedure", "operation", "waits for"], [["p" * 30, "o" * 40, ""], ["q" * 30, "o" * 40, ""]]
    found = "".join(printed(*tables(header, rows, WIDTH)))
    assert (found.count("q" * 30), "waits for" in found, "omitted" in found) == (1, False, False)
    rows[1][2] = "n2"
    assert "waits for" in "".join(printed(*tables(header, rows, WIDTH)))
    assert "waits for" in "".join(printed(*tables(header, [["p", "o", ""]], WIDTH)))
    assert "waits for" in "".join(printed(*tables(header, [], WIDTH)))
