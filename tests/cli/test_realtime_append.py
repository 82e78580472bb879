"""palisade segments realtime append: rows that the segment has already are skipped, and that is shown (issue 16)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from palisade.cli.main import main
from palisade.cli.realtime import BATCH, Repetition, fill
from palisade.client import Client
from palisade.client.realtime_changes import Closed
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.wire.segment_errors import BadSegment, RealtimeNotStored
from tests.support.cli_node import cli_node


class Writer:
    """Of a segment that has these rows."""

    segment, node = "clicks/0", "n1"

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.appended: list[Any] = []
        self.is_closed = False

    async def append(self, rows: list[Any]) -> None:
        self.appended += rows
        self.rows += len(rows)

    async def close(self) -> None:
        self.is_closed = True


def lines(tmp_path: Path, rows: int) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"[{number}]\n" for number in range(rows)))
    return file


async def test_append_shows_how_many_rows_it_skipped(tmp_path: Path) -> None:
    """Another file under the same --writer lost its first rows, and nothing said so."""
    writer: Any = Writer(2)
    found = await fill(writer, lines(tmp_path, 3), [[0], [1], [2]], False)
    assert (writer.appended, found["rows"], found["skipped"]) == ([[2]], 3, 2)


async def test_file_with_fewer_rows_than_the_segment_is_refused(tmp_path: Path) -> None:
    writer: Any = Writer(2)
    with pytest.raises(BadSegment, match=r"clicks/0 has 2 rows already and .*rows.jsonl has 1: give a file that"):
        await fill(writer, lines(tmp_path, 1), [[0]], True)
    assert (writer.appended, writer.is_closed) == ([], False)


class FullWriter(Writer):
    """`full_rows` in segments that were closed, `rows` in the current one."""

    name, full_rows, grows, closes = "0123abcd", 0, True, False


@pytest.mark.parametrize(
    ("given", "closes", "fields", "text"),
    [
        (
            "",
            True,
            {},
            "To continue, repeat the command with --node n1 --writer 0123abcd --close: stored rows are skipped; "
            "'palisade segments realtime close clicks/0' publishes the segment without the rest of FILE",
        ),
        (
            "w1",
            True,
            {"grows": False},
            "To continue, repeat the command: stored rows are skipped",
        ),
        (
            "w1",
            False,
            {"full_rows": 9, "grows": False},
            "To continue, repeat the command with a FILE without its first 9 rows: stored rows are skipped",
        ),
        (
            "",
            True,
            {"full_rows": 9, "closes": True},
            "The first 11 rows of FILE are stored; 'palisade segments realtime close clicks/0' publishes those of this "
            "segment",
        ),
    ],
)
def test_command_that_failed_shows_how_no_row_is_stored_twice(
    given: str, closes: bool, fields: dict[str, Any], text: str
) -> None:
    """A repetition without --writer stored the rows again in another segment (issue 16)."""
    writer: Any = FullWriter(2)
    vars(writer).update(fields)
    assert Repetition(writer, given, closes).text() == text


def test_append_whose_outcome_is_unknown_has_code_4_and_names_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with --json, which has no notes."""

    class Lost(FullWriter):
        async def open(self) -> None: ...

        async def release(self) -> None: ...

        async def append(self, rows: list[Any]) -> None:
            raise OutcomeUnknown("n1: no answer in time; it may have been executed")

    monkeypatch.setattr(Client, "realtime", lambda *_, **__: Lost(0))
    columns = ["--from", "2013-03-01", "--to", "2013-03-02", "--column", "id:int"]
    with cli_node() as node:
        where = ["--endpoints", node.endpoint, "--json"]
        done = CliRunner().invoke(
            main, ["segments", "realtime", "append", "clicks", str(lines(tmp_path, 1)), *columns, *where]
        )
    assert done.exit_code == 4
    message = json.loads(done.stderr)["error"]["message"]
    assert message.startswith("n1: no answer in time; it may have been executed. To continue, repeat the command with ")
    assert "--node n1 --writer 0123abcd --close: stored rows are skipped" in message


def appended(
    monkeypatch: pytest.MonkeyPatch, writer: type[FullWriter], file: Path, *more: str
) -> tuple[Result, list[FullWriter]]:
    """The result of `append` with such a writer, and the writers that were opened."""
    opened = list[FullWriter]()

    class Opening(writer):  # type: ignore[valid-type,misc]
        async def open(self) -> None:
            opened.append(self)
            self.grows = True

        async def release(self) -> None: ...

    monkeypatch.setattr(Client, "realtime", lambda *_, **__: Opening(0))
    columns = ["--from", "2013-03-01", "--to", "2013-03-02", "--column", "id:int"]
    with cli_node() as node:
        where = ["--endpoints", node.endpoint, *more]
        return CliRunner().invoke(
            main, ["segments", "realtime", "append", "clicks", str(file), *columns, *where]
        ), opened


@pytest.mark.parametrize("json_", [(), ("--json",)])
def test_rows_whose_disk_failed_may_be_stored_which_is_code_4(
    json_: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was 1, "nothing was changed"."""

    class Full(FullWriter):
        async def append(self, rows: list[Any]) -> None:
            raise RealtimeNotStored("n1 cannot store rows: no space; free space, then restart the node")

    done, _ = appended(monkeypatch, Full, lines(tmp_path, 1), *json_)
    text = "no space; free space, then restart the node. To continue, repeat the command with --node n1 --writer "
    assert (done.exit_code, text in done.stderr, "realtime-not-stored" in done.stderr) == (4, True, bool(json_))


def test_segment_that_a_failing_disk_did_not_open_is_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(FullWriter):
        grows = False

        async def append(self, rows: list[Any]) -> None:
            self.grows = False
            raise RealtimeNotStored("n1 cannot open a segment")

    assert appended(monkeypatch, Refused, lines(tmp_path, 1))[0].exit_code == 1


def test_close_whose_disk_failed_is_code_4(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(*_: Any) -> int:
        raise RealtimeNotStored("n1 cannot close segment clicks/0: no space; free space, then restart the node")

    monkeypatch.setattr(Client, "realtime_closed", close)
    with cli_node() as node:
        done = CliRunner().invoke(
            main, ["segments", "realtime", "close", "clicks/0", "--endpoints", node.endpoint, "--json"]
        )
    error = json.loads(done.stderr)["error"]
    assert (done.exit_code, error["code"], error["retry"]) == (4, "realtime-not-stored", False)
    hint = (
        "; the segment may have been closed: once the node has been restarted, 'palisade segments realtime list' shows "
        "its state"
    )
    assert error["message"].endswith(hint)


@pytest.mark.parametrize(("before", "text"), [(True, "is closed already with 3 rows"), (False, "closed with 3 rows")])
def test_close_can_be_repeated(before: bool, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(*_: Any) -> Closed:
        return Closed(3, before)

    monkeypatch.setattr(Client, "realtime_closed", close)
    with cli_node() as node:
        done = CliRunner().invoke(main, ["segments", "realtime", "close", "clicks/0", "--endpoints", node.endpoint])
    assert (done.exit_code, done.stdout) == (0, f"clicks/0: {text}\n")


@pytest.mark.parametrize("number", [2, BATCH])
def test_invalid_line_of_the_first_request_opens_no_segment(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first line was parsed before."""
    file = lines(tmp_path, number - 1)
    file.write_text(f"{file.read_text()}[1,\n[2]\n")
    done, opened = appended(monkeypatch, FullWriter, file)
    assert (done.exit_code, opened) == (2, [])
    assert done.stderr.startswith(f"palisade: line {number} of {file} is not JSON: ")


def test_later_invalid_line_names_the_stored_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --json, too, which has no notes."""
    file = lines(tmp_path, BATCH + 5)
    file.write_text(f"{file.read_text()}oops\n")
    done, opened = appended(monkeypatch, FullWriter, file, "--json")
    assert (done.exit_code, len(opened[0].appended)) == (2, BATCH)
    message = json.loads(done.stderr)["error"]["message"]
    assert message.startswith(f"line {BATCH + 6} of {file} is not JSON: ")
    assert f"; clicks/0 stays open at node n1 with {BATCH} rows. Correct FILE first. To continue, repeat" in message


def test_file_in_another_format_opens_no_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt with a CSV file left an open segment without rows (issue 16)."""
    opened = list[Any]()
    monkeypatch.setattr(Client, "realtime", lambda *_, **__: opened.append(1))
    file = tmp_path / "rows.csv"
    file.write_text("id,at\n1,2\n")
    columns = ["--from", "2013-03-01", "--to", "2013-03-02", "--column", "id:int"]
    with cli_node() as node:
        where = ["--endpoints", node.endpoint]
        done = CliRunner().invoke(main, ["segments", "realtime", "append", "clicks", str(file), *columns, *where])
    assert (done.exit_code, opened) == (2, [])
    assert done.stderr.startswith(f"palisade: line 1 of {file} is not JSON: unexpected text at column 1")


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("[0]", "column host: 0 is not of type string"),
        ("[]", "expected 1 value, got []"),
        ('{"hots": "a"}', "there is no column 'hots'"),
    ],
)
def test_row_of_another_type_opens_no_segment(
    row: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment stayed open, without rows; as no other node had it, counts failed while its node was down."""
    opened: list[str] = []
    monkeypatch.setattr("palisade.client.realtime.RealtimeWriter.open", lambda _: opened.append("opened"))
    file = tmp_path / "rows.jsonl"
    file.write_text(f'["a"]\n{row}\n')
    words = ["segments", "realtime", "append", "clicks", str(file), "--from", "2013-03-01", "--to", "2013-03-02"]
    with cli_node() as node:
        done = CliRunner().invoke(main, [*words, "--column", "host:string", "--endpoints", node.endpoint, "--json"])
    error = json.loads(done.stderr)["error"]
    assert (done.exit_code, error["code"], opened) == (2, "usage", []), error
    assert error["message"] == f"line 2 of {file}: {text}"
