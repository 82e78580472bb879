"""Files that cannot be read are refused with a reason in words, without "[Errno 2]" and the like (issue 16)."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from palisade.catalog.realtime_rows import columns_from
from palisade.cli.main import main
from palisade.cli.realtime import rows_in
from palisade.cli.supervisor.screen import ClusterScreen
from palisade.cli.supervisor.up import UpRequest
from palisade.cli.target import LAYOUT_FILE, local_layout
from palisade.pipeline.cluster import credentials_of
from palisade.pipeline.errors import BadOption
from palisade.pipeline.options import ClusterAccess
from tests.support.cli_node import cli_node

REST = "--from", "2013-01-01", "--to", "2013-01-02", "--column", "a:int"


def command(*arguments: str) -> Callable[[], str]:
    return lambda: CliRunner().invoke(main, arguments).stderr


def message_of(action: Callable[[], object]) -> str:
    with pytest.raises((click.UsageError, BadOption)) as refused:
        action()
    return str(refused.value)


def test_report_of_a_recovery_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "recovery.json").mkdir()
    shown = command("recovery", "--data-dir", str(tmp_path))()
    assert shown == f"palisade: the report in {tmp_path} cannot be read: is a directory\n"


def test_segments_to_publish_that_are_missing(tmp_path: Path) -> None:
    shown = command("segments", "publish", "flights", str(tmp_path / "none"))()
    assert f"{tmp_path}/none is not a readable JSON file: no such file or directory; see" in shown


def test_value_of_a_key_in_a_file_that_is_missing(tmp_path: Path) -> None:
    """The reason began with a capital in the middle of the sentence."""
    shown = command("put", "/k", "--file", str(tmp_path / "none"))()
    assert f"'--file' / '-f': {tmp_path}/none: no such file or directory; see" in shown


def test_layout_of_the_local_cluster_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / LAYOUT_FILE).mkdir()
    shown = message_of(lambda: local_layout(tmp_path))
    assert shown.startswith(f"{tmp_path / LAYOUT_FILE} cannot be read: is a directory; give --endpoints")


def test_credentials_of_a_pipeline_job_that_are_missing(tmp_path: Path) -> None:
    access = ClusterAccess(("127.0.0.1:1",), "", "alice", str(tmp_path / "none"), 1.0)
    shown = message_of(lambda: credentials_of(access))
    assert shown == f"option passwordFile: cannot read {tmp_path}/none: no such file or directory"


def test_manual_pages_in_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """`palisade man /proc/x` ended with a traceback."""
    (tmp_path / "file").touch()
    shown = command("man", str(tmp_path / "file" / "man1"))()
    assert shown == f"palisade: {tmp_path}/file/man1 can't be written: not a directory; give another folder\n"
    (tmp_path / "man2" / "palisade.1").mkdir(parents=True)
    shown = command("man", str(tmp_path / "man2"))()
    assert shown == f"palisade: {tmp_path}/man2/palisade.1 can't be written: is a directory; give another folder\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"secret\n", "line 1: unexpected text at column 1; give an object such as"),
        (b'{"key": "/a", "value": "x"}\n{"key": "/b",\n', "line 2: the JSON is incomplete at column 14; give"),
        (b'{"key": "/b", "val', "line 1: the JSON is incomplete at column 15; give"),
        (b"\xff\xfe", "line 1: it is not UTF-8; nothing"),
        (b'{"key": "/a", "value": "\xff"}\n', "line 1: it is not UTF-8"),
        (b"[" * 100_000, "line 1: it is nested too deeply"),
    ],
)
def test_line_to_load_that_is_not_json(tmp_path: Path, content: bytes, reason: str) -> None:
    """It was "Expecting value: line 1 column 1 (char 0)"."""
    file = tmp_path / "rows"
    file.write_bytes(content)
    assert command("load", str(file))().startswith(f"palisade: {file}: {reason}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("secret", "is not a readable JSON file: unexpected text at line 1, column 1"),
        ("[\n  {\n", "is not a readable JSON file: the JSON is incomplete at line 3, column 1"),
        ("", "is not a readable JSON file: it is empty"),
        ("[" * 100_000, "is not a readable JSON file: it is nested too deeply"),
        ("{}", "is not a JSON list of segments"),
    ],
)
def test_segments_to_publish_that_are_not_json(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "segments.json"
    file.write_text(content)
    shown = command("segments", "publish", "flights", str(file))()
    assert shown == f"palisade: {file} {reason}; see 'main segments publish --help'\n"


def test_segments_to_publish_that_lack_a_field(tmp_path: Path) -> None:
    """It was "segments: {'from': '2013-01-01'} has no to", without the file and the number of the entry."""
    file = tmp_path / "segments.json"
    whole = {"from": "2013-01-01", "to": "2013-01-02", "rows": 1, "size_bytes": 1, "digest": f"rows-sha256:{0:064}"}
    file.write_text(json.dumps([whole, {"from": "2013-01-01"}]))
    shown = command("segments", "publish", "flights", str(file), "--endpoints", "127.0.0.1:9")()
    assert shown == (
        f'palisade: {file}, entry 2: segments: {{"from": "2013-01-01"}} has no field to; '
        "needed are from, to, rows, size_bytes, digest; nothing was published\n"
    )


def test_rows_to_append_that_are_missing_open_no_segment(tmp_path: Path) -> None:
    shown = command("segments", "realtime", "append", "s", str(tmp_path / "none"), *REST)()
    assert f"File '{tmp_path}/none' does not exist; see" in shown


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"[1]\n[1,\n", "the JSON is incomplete at column 4"), (b"[1]\n\xff\xfe", "it is not UTF-8")],
)
def test_row_to_append_that_is_not_json(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "rows"
    file.write_bytes(content)
    shown = message_of(lambda: list(rows_in(file, columns_from({"id": "int"}))))
    assert shown == f"line 2 of {file} is not JSON: {reason}"


def in_little_memory(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that fails, instead of the machine, if it reads without end."""
    return subprocess.run(
        [sys.executable, "-m", "palisade.cli", *arguments],
        env={**os.environ, "PALISADE_ENDPOINTS": "127.0.0.1:9", **environ},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "exit_code"),
    [
        ("load /dev/full", 1),
        ("segments publish s /dev/full", 2),
        (f"segments realtime append s /dev/full {' '.join(REST)}", 2),
        ("put /a --file /dev/full", 2),
        ("txn /dev/full", 2),
        ("user add bob --password-file /dev/full", 2),
        ("get /a --token-file /dev/full", 2),
        ("up --config /dev/full --data-dir {folder}", 1),
    ],
)
def test_device_without_an_end_is_refused_as_input(line: str, exit_code: int, tmp_path: Path) -> None:
    """`palisade load /dev/full` read until the memory was full; others ended with a traceback."""
    done = in_little_memory(*line.format(folder=tmp_path / "new").split())
    (shown,) = done.stderr.splitlines()
    assert "/dev/full" in shown
    assert "it is a device; give a regular file or a pipe" in shown
    assert done.returncode == exit_code
    assert list(tmp_path.iterdir()) == []


def test_device_without_an_end_is_refused_as_the_file_of_a_password() -> None:
    done = in_little_memory("get", "/a", PALISADE_USER="bob", PALISADE_PASSWORD_FILE="/dev/full")
    reason = "it is a device; give a regular file or a pipe"
    named = "the password file /dev/full (from PALISADE_PASSWORD_FILE)"
    assert done.stderr.startswith(f"palisade: {named} cannot be read: {reason}; see ")
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("variables", "options", "named"),
    [
        ({"PALISADE_TOKEN_FILE": "none"}, [], "the token file none (from PALISADE_TOKEN_FILE)"),
        ({"PALISADE_TOKEN_FILE": "other"}, ["--token-file", "none"], "the token file none"),
    ],
)
def test_file_from_the_environment_is_named_with_its_variable(
    variables: dict[str, str], options: list[str], named: str
) -> None:
    shown = CliRunner().invoke(main, ["get", "/a", *options], env=variables).stderr
    assert shown.startswith(f"palisade: {named} cannot be read: no such file or directory; see ")


@pytest.mark.parametrize(("demo", "code"), [("--demo", 2), ("--no-demo", 0)])
def test_up_reads_credentials_only_for_the_demo(
    demo: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(request: UpRequest, _screen: ClusterScreen) -> int:
        return 0 if request.credentials is None else 1

    monkeypatch.setattr("palisade.cli.supervisor.up.up", run)
    arguments = ["up", demo, "--data-dir", str(tmp_path)]
    assert CliRunner().invoke(main, arguments, env={"PALISADE_TOKEN_FILE": "none"}).exit_code == code


def test_pipe_is_read_as_input() -> None:
    with cli_node() as node:
        done = subprocess.run(
            [sys.executable, "-m", "palisade.cli", "load", "/dev/stdin", "--endpoints", node.endpoint],
            input='{"key": "/a", "value": "1"}\n', capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    assert done.stdout == "1 entry, 1 of them written\n"


def test_load_names_the_reason_without_a_number_of_the_system(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["load", str(tmp_path / "none")])
    assert done.stderr == f"palisade: {tmp_path}/none: no such file or directory; nothing was written\n"


def test_credentials_in_an_empty_file(tmp_path: Path) -> None:
    """The node refused them: the token is invalid or expired."""
    empty = tmp_path / "token"
    empty.write_text("\n")
    shown = command("get", "/a", "--token-file", str(empty))()
    assert shown.startswith(f"palisade: the token file {empty} is empty; see ")
    empty.write_text("\ncluster-id: 1\n")
    assert f"the token file {empty} has an empty first line" in command("get", "/a", "--token-file", str(empty))()
    empty.write_text("\n")
    shown = message_of(lambda: credentials_of(ClusterAccess(("127.0.0.1:1",), str(empty), "", "", 1.0)))
    assert shown == f"option tokenFile: {empty} is empty"
