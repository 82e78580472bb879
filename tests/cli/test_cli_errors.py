"""Errors are one line or one JSON object, and contain no Python (issue 16, item 13)."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner, Result

from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.base.key_text import key_text
from palisade.base.network_reason import reason_of
from palisade.cli.main import main
from palisade.cli.session import CliSession, failure_of
from palisade.client.sync_client import SyncClient
from palisade.wire.segment_errors import SegmentsUnavailable
from tests.support.cli_node import CliNode
from tests.tidy.commands_page import commands

PYTHON = re.compile(r"\bb'|\bb\"|\[Errno|Connect call|ssl:|Traceback|None or str|Warning")


def invoke(node: CliNode, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin, env={"PALISADE_ENDPOINTS": node.endpoint})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"/config/mode", "/config/mode"),
        ("к".encode(), "к"),
        (b"\xff\x00", "0xff00"),
        (b"a\nb", "0x610a62"),
        (b"", "0x"),
        (b"x" * 100, "x" * 64 + "..."),
        ("é".encode() * 50, "é" * 32 + "..."),
        (b"x" + "é".encode() * 50, "x" + "é" * 31 + "..."),
    ],
)
def test_keys_in_messages_are_text_or_hexadecimal(key: bytes, text: str) -> None:
    assert key_text(key) == text


async def http(node: CliNode, path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://{node.http}{path}") as response:
        found = await response.json(content_type=None)
        return str(found["detail"])


def test_missing_key_over_http_is_named_as_text(node: CliNode) -> None:
    """It was `b'\\xd0\\xba' does not exist`."""
    assert asyncio.run(http(node, "/v1/kv/%D0%BA")).startswith("the key к does not exist at revision ")
    assert asyncio.run(http(node, "/v1/kv/%FF")).startswith("the key 0xff does not exist at revision ")
    assert not PYTHON.search(asyncio.run(http(node, "/v1/kv/")))


@pytest.mark.parametrize(("key", "text"), [("к", "к"), (os.fsdecode(b"\xff"), "0xff")])
def test_missing_key_of_the_command_line_is_named_as_over_http(node: CliNode, key: str, text: str) -> None:
    """It was `there is no key \\xff`, which is also the text of another key (issue 16)."""
    assert f"palisade: there is no key {text} (revision" in invoke(node, "get", key).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "", "x"),
        ("put", "k" * 5000, "x"),
        ("put", "/a", "x" * 3_000_000),
        ("get", ""),
        ("watch", ""),
        ("txn",),
        ("region", "delete", "none"),
        ("get", "/a", "--at", "127.0.0.1:9"),
        ("status", "--at", "127.0.0.1:9"),
        ("login", "--user", "a", "--at", "127.0.0.1:9"),
        ("get", "/a", "--endpoints", "127.0.0.1:9", "--timeout", "0.3"),
        ("status", "--endpoints", "127.0.0.1:9"),
        ("get", "/a", "--endpoints", "no.such.host.invalid:1", "--timeout", "0.5"),
        ("get", "/a", "--token-file", "/none"),
        ("user", "add", "alice"),
        ("user", "add", "alice", "--password-file", "/none"),
    ],
)
def test_error_is_one_line_without_python(
    node: CliNode, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALISADE_PASSWORD", "a password")
    result = invoke(node, *arguments, stdin="")
    assert result.exit_code in (1, 2, 3), result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("palisade: ")
    assert not PYTHON.search(result.stderr), result.stderr
    again = invoke(node, *arguments, "--json", stdin="")
    error = json.loads(again.stderr)["error"]
    assert set(error) == {"code", "message", "retry"}
    assert again.exit_code == result.exit_code


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly", "--json"),
        ("put", "/a", "--json"),
        ("put", "/a", "x", "--lease", "soon", "-o", "json"),
        ("get", "--json"),
        ("get", "/a", "--no-such-option", "--json"),
        ("catalog", "create-table", "--json"),
        ("restore", "--json"),
        ("up", "--nodes", "many", "--json"),
    ],
)
def test_wrong_usage_with_json_is_one_object(node: CliNode, arguments: tuple[str, ...]) -> None:
    result = invoke(node, *arguments)
    assert result.exit_code == 2
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["retry"]) == ("usage", False)
    assert error["message"]


@pytest.mark.parametrize("form", [("--json",), ("-o", "json"), ("--output=json",)], ids=" ".join)
@pytest.mark.parametrize("path", [context.command_path.split()[1:] for _, context in commands()], ids=" ".join)
def test_wrong_usage_of_every_command_is_one_object(path: list[str], form: tuple[str, ...]) -> None:
    """Also of groups, and of commands that have no option for JSON. Nothing else is written to stdout or stderr."""
    result = CliRunner().invoke(main, [*path, "--no-such-option", *form])
    assert (result.exit_code, json.loads(result.output)["error"]["code"]) == (2, "usage")


def test_wrong_usage_without_json_is_one_line_with_the_help_command(node: CliNode) -> None:
    result = invoke(node, "lease", "grant")
    assert result.stderr.startswith("palisade: Missing argument 'SECONDS'; see '")
    assert result.stderr.rstrip().endswith("lease grant --help'")


async def test_reasons_of_network_errors_are_plain_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    async with HttpRequests() as requests:
        with pytest.raises(NoAnswer) as failed:
            await requests.json(f"127.0.0.1:{port}", "/")
    assert failed.value.reason == "connection refused"
    with pytest.raises(OSError, match=str(port)) as refused:
        await asyncio.open_connection("127.0.0.1", port)
    assert reason_of(refused.value) == "connection refused"
    assert reason_of(TimeoutError()) == "no answer in time"
    assert reason_of(socket.gaierror(-2, "Name or service not known")) == "name or service not known"
    assert reason_of(ValueError()) == "ValueError"


def test_query_without_all_segments_names_every_missing_one(capsys: pytest.CaptureFixture[str]) -> None:
    """The text of the error itself is cut after five."""
    missing = tuple(f"flights/{number}" for number in range(40))
    failure = failure_of(SegmentsUnavailable(missing), [])
    assert failure is not None
    with pytest.raises(SystemExit) as ended:
        CliSession([], 1.0, as_json=False).fail(failure)
    first, *names = capsys.readouterr().err.splitlines()
    assert (ended.value.code, tuple(names)) == (3, missing)
    assert first.startswith("palisade: 40 segments without a server.")
    assert "copy the old files" in first, "after a restore, 'segments assign' changes nothing"
    assert "'palisade segments set-replicas DATA_SOURCE 0 SEGMENT' or 'mark-unused'" in first
    with pytest.raises(SystemExit):
        CliSession([], 1.0, as_json=True).fail(failure)
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["code"], tuple(error["missing"])) == ("segments-unavailable", missing)


INTERRUPTED_WHILE_LOADING = """
import sys
from pathlib import Path

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "palisade.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from palisade.cli.__main__ import main
main()
"""


def test_ctrl_c_while_the_command_loads_prints_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_WHILE_LOADING], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("command", [("status",), ("backup", "b")])
def test_command_without_a_node_names_the_reason(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` and `backup` named the addresses only (issue 16, 9)."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*command, "--endpoints", "127.0.0.1:9,127.0.0.1:19"])
    assert result.exit_code == 3
    assert "127.0.0.1:9, 127.0.0.1:19: connection refused" in result.stderr
    assert "start one with 'palisade up' or, if one is starting, retry; or give --endpoints" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "exit_code", "text"),
    [
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/x"),
            1,
            "/proc/x: no such file or directory;",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "no space left on device;"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), 1, "no such file or directory;"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), 3, "no node answers at 127.0.0.1:9"),
    ],
)
def test_error_of_the_file_system_is_not_reported_as_a_silent_cluster(
    error: OSError, exit_code: int, text: str
) -> None:
    """`pipeline run history --to /proc/x`: "no node answers at ...: no such file or directory"."""
    failure = failure_of(error, ["127.0.0.1:9"])
    assert failure is not None
    assert failure.exit_code == exit_code
    assert failure.message.startswith(text)


def test_compact_names_what_retains_the_history(node: CliNode) -> None:
    """It said "history before revision 1 is removed"."""
    with SyncClient(node.endpoint) as client:
        first = client.put("/a", "1").revision
        last = client.put("/a", "2").revision
        client.pin(b"/", b"0", "reader", first, 60_000)
    text = f"; a pin or a watermark retains the rest, up to revision {last}, until it ends\n"
    assert invoke(node, "compact", str(last)).stdout.endswith(text)
