"""Which cluster a command talks to, and that stored credentials reach no other one (issue 16, item 2)."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from palisade.base.directory_lock import DirectoryLock
from palisade.cli import cluster_check
from palisade.cli.cluster_check import check_streams
from palisade.cli.credentials import token_file_text
from palisade.cli.main import main
from palisade.cli.session import CliSession
from palisade.cli.target import DEFAULT, find_target
from palisade.node.local_layout import Layout
from palisade.wire.credentials import StoredToken
from tests.support.cli_node import CliNode

TOKEN = "pt1.a-secret.b"
PASSWORD = {"PALISADE_USER": "alice", "PALISADE_PASSWORD": "alices password"}


def invoke(*arguments: str, stdin: str | None = None, **environ: str) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin, env=environ)


def formatted(folder: Path, base_port: int) -> None:
    (folder / ".palisade").mkdir()
    (folder / ".palisade" / "cluster.json").write_text(json.dumps(Layout("c", 3, base_port).to_json()))


# The rule.


def test_target_is_the_option_then_the_variable_then_the_local_cluster_then_the_default(tmp_path: Path) -> None:
    environ = {"PALISADE_ENDPOINTS": "b:1, b:2"}
    assert find_target(None, {}, tmp_path).endpoints == DEFAULT
    formatted(tmp_path, 8400)
    local = find_target(None, {}, tmp_path)
    assert local.endpoints == ("127.0.0.1:8601", "127.0.0.1:8602", "127.0.0.1:8603")
    assert (local.http, local.source) == ("127.0.0.1:8401", "the cluster in .palisade")
    assert find_target(None, environ, tmp_path).endpoints == ("b:1", "b:2")
    assert find_target(("a:1",), environ, tmp_path).endpoints == ("a:1",)


def test_damaged_layout_is_wrong_usage_and_no_other_cluster_is_asked(tmp_path: Path) -> None:
    formatted(tmp_path, 8400)
    (tmp_path / ".palisade" / "cluster.json").write_text("{}")
    with pytest.raises(click.UsageError, match=r"cluster\.json cannot be read.*give --endpoints"):
        find_target(None, {}, tmp_path)


def test_bad_variable_is_wrong_usage_that_names_it() -> None:
    result = invoke("get", "/a", PALISADE_ENDPOINTS="nowhere")
    assert result.exit_code == 2
    assert "PALISADE_ENDPOINTS: 'nowhere' is not host:port; write it such as 127.0.0.1:7601" in result.stderr


def test_commands_find_the_local_cluster_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formatted(tmp_path, 8410)
    monkeypatch.chdir(tmp_path)
    for command in (["get", "/a"], ["status"], ["login"], ["topology"]):
        result = invoke(*command, "--timeout", "0.3", **PASSWORD)
        assert result.exit_code == 3, result.output
        assert "127.0.0.1:861" in result.stderr


def test_commands_wait_for_nodes_that_a_running_up_is_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands failed at once, and proposed to start 'palisade up', which was starting its nodes."""
    formatted(tmp_path, 8410)
    monkeypatch.chdir(tmp_path)
    commands = (["get", "/a"], ["status"], ["backup", "file"])
    for command in commands:
        assert "'palisade up' runs" not in invoke(*command, "--timeout", "0.3").stderr
    lock = DirectoryLock(tmp_path / ".palisade", RuntimeError)
    for command in commands:
        result = invoke(*command, "--timeout", "0.3")
        assert result.exit_code == 3, result.output
        assert "'palisade up' runs in this folder, so its nodes are starting" in result.stderr
        assert "starts some" not in result.stderr
        assert "start one with" not in result.stderr
    lock.release()


@pytest.mark.parametrize(("up_runs", "timeout_s", "asked"), [(True, 60.0, 3), (True, 0.001, 1), (False, 60.0, 1)])
async def test_check_of_the_cluster_is_repeated_while_a_running_up_is_starting_its_nodes(
    up_runs: bool, timeout_s: float, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token file, commands failed at once; with a password, they waited."""
    calls = list[float]()

    async def check(endpoints: Sequence[str], _token: Any, ask_s: float, _unreached: Any) -> Sequence[str]:
        calls.append(ask_s)
        if len(calls) < 3:
            raise ConnectionRefusedError
        return endpoints

    monkeypatch.setattr(cluster_check, "check_streams", check)
    token = StoredToken(TOKEN, "id-1", "token file")
    session = CliSession([":1"], timeout_s, as_json=False, shown=token, up_runs=up_runs)
    with nullcontext() if asked == 3 else pytest.raises(ConnectionRefusedError):
        assert await session.checked_endpoints() == [":1"]
    assert len(calls) == asked


def test_login_asks_the_cluster_of_the_variable(node: CliNode) -> None:
    """Before, it ignored the variable and sent the password to 127.0.0.1:7401."""
    result = invoke("login", PALISADE_ENDPOINTS=node.endpoint, **PASSWORD)
    assert result.exit_code == 1
    assert "authorization is off" in result.stderr


def test_login_with_at_asks_that_node(node: CliNode) -> None:
    result = invoke("login", "--at", node.http, PALISADE_ENDPOINTS="127.0.0.1:9", **PASSWORD)
    assert "authorization is off" in result.stderr


@pytest.mark.parametrize("place", ["--endpoints", "--at"])
def test_login_reports_that_no_node_answers_before_it_asks_for_the_password(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    result = invoke("login", "--user", "ada", place, "127.0.0.1:9", "--timeout", "0.5", stdin="secret\n")
    assert (result.exit_code, "password of" in result.output) == (3, False), result.output
    assert "127.0.0.1:9" in result.stderr


def test_probe_before_the_prompt_has_no_credentials(node: CliNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that answers it is asked with the password, which follows."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    for place in (("--endpoints", node.endpoint), ("--at", node.http)):
        result = invoke("login", "--user", "ada", *place, stdin="secret\n")
        assert "password of ada" in result.output
        assert "authorization is off" in result.stderr
    with listener() as (address, received):
        invoke("login", "--user", "ada", "--at", address, "--timeout", "0.5", stdin="secret\n")
    assert received.startswith(b"GET /v1/login ")
    assert b"Authorization" not in received


# Stored tokens.


@contextmanager
def listener() -> Iterator[tuple[str, bytearray]]:
    """(address, the bytes that it has received) of a server that is not a node."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.extend(connection.recv(65536))

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)


def stored(folder: Path, cluster_id: str) -> str:
    file = folder / "token"
    file.write_text(token_file_text(TOKEN, cluster_id))
    return str(file)


@pytest.mark.parametrize("command", [["put", "/a", "x"], ["status"], ["member", "list"], ["backup", "-"]])
def test_token_of_the_same_cluster_is_sent(node: CliNode, tmp_path: Path, command: list[str]) -> None:
    token = stored(tmp_path, "id-1")
    result = invoke(*command, "--endpoints", node.endpoint, "--token-file", token)
    assert "was not sent" not in result.stderr, result.output


@pytest.mark.parametrize(
    "command", [["put", "/a", "x"], ["status"], ["member", "list"], ["backup", "-"], ["user", "list"]]
)
def test_token_of_another_cluster_is_not_sent(node: CliNode, tmp_path: Path, command: list[str]) -> None:
    result = invoke(*command, "--endpoints", node.endpoint, "--token-file", stored(tmp_path, "id-2"), "--json")
    assert result.exit_code == 1
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "other-cluster"
    assert "belongs to cluster id-1" in error["message"]
    assert "id-2; the token was not sent" in error["message"]


def test_token_of_another_cluster_is_not_sent_over_http(node: CliNode, tmp_path: Path) -> None:
    token = stored(tmp_path, "id-2")
    for command in (["status"], ["get", "/a"], ["fencing"]):
        result = invoke(*command, "--at", node.http, "--token-file", token)
        assert result.exit_code == 1
        assert "the token was not sent" in result.stderr
    result = invoke("recovery", "--at", node.http, PALISADE_TOKEN_FILE=token)
    assert "the token was not sent" in result.stderr


def test_token_is_not_sent_to_a_server_that_does_not_name_its_cluster(tmp_path: Path) -> None:
    token = stored(tmp_path, "id-1")
    with listener() as (address, heard):
        result = invoke("put", "/a", "x", "--endpoints", address, "--token-file", token, "--timeout", "1")
        assert result.exit_code == 1
        over_http = invoke("status", "--at", address, "--token-file", token)
        assert over_http.exit_code == 3
        assert heard
        assert b"a-secret" not in heard


def test_endpoint_that_does_not_answer_is_not_used(node: CliNode, tmp_path: Path) -> None:
    endpoints = f"127.0.0.1:9,{node.endpoint}"
    assert invoke("put", "/a", "x", "--endpoints", endpoints, "--token-file", stored(tmp_path, "id-1")).exit_code == 0


def test_frozen_endpoints_delay_the_check_of_the_cluster_for_a_moment_only(node: CliNode, tmp_path: Path) -> None:
    """They took 2 s of the time of each command with a stored token (issue 16)."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        endpoints = [f"127.0.0.1:{frozen.getsockname()[1]}", node.endpoint]
        token = StoredToken(TOKEN, "id-1", "token file")
        assert asyncio.run(check_streams(endpoints, token, 60.0)) == (node.endpoint,)


def test_bare_token_is_sent_as_it_is(node: CliNode, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    result = invoke("put", "/a", "x", "--endpoints", node.endpoint, "--token-file", str(tmp_path / "token"))
    assert result.exit_code == 0


# Wrong ports.


@pytest.mark.parametrize("with_token", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        ["put", "/a", "x"],
        ["watch", "/a"],
        ["member", "list"],
        ["catalog", "create-database", "d"],
        ["status"],
        ["backup", "-"],
    ],
)
def test_command_at_the_http_port_fails_at_once_and_names_the_stream_port(
    node: CliNode, tmp_path: Path, command: list[str], with_token: bool
) -> None:
    """It tried again until its deadline (issue 16)."""
    signed = ["--token-file", stored(tmp_path, "id-1")] if with_token else []
    began = time.monotonic()
    result = invoke(*command, "--endpoints", node.http, "--timeout", "60", "--json", *signed)
    assert time.monotonic() - began < 15
    assert result.exit_code == 1, result.output
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["retry"]) == ("wrong-port", False)
    assert f"{node.http}: this is the HTTP API port" in error["message"]
    assert "use the stream port 127.0.0.1:" in error["message"]
