"""Each command at each port that is not its own: refused at once, with the port to use (issue 16, item 9)."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.client.loop_thread import LoopThread
from palisade.raftgroup.tcp_transport import TcpPeers
from tests.support.cli_node import cli_node
from tests.support.loopback import LOOPBACK
from tests.support.recorder import Recorder
from tests.support.threaded_node import unused_address

STORE = "--endpoints={stream}"
COMMANDS = {
    "stream": (("put", "/a", "b", "--endpoints={port}"), ("watch", "/a", "--endpoints={port}")),
    "http": (("get", "/a", "--at={port}"), ("status", "--at={port}"), ("recovery", "--at={port}")),
    "journal": (
        ("journal", "append", "x", "--role=orders", "--copies={port}"),
        ("journal", "read", "--role=orders", "--copies={port}"),
        ("journal", "status", "--role=orders", "--copies={port}"),
        ("activation", "show", "orders", "--copy={port}", STORE),
    ),
}
REPORTS = ("show",)
"""Commands of a journal that print what is wrong with each copy, beside the copies that answer."""
HERE = {
    "stream": "this is the stream port",
    "http": "this is the HTTP API port",
    "peer": "this is the peer port",
    "journal": "this is the port of a journal copy",
    "metrics": "this is the metrics port of a journal copy",
}
USE = {"stream": "use the stream port", "http": "use the HTTP API port", "journal": "use the address of a journal copy"}
AT_METRICS = {"stream": "the client needs the address of a stream", "journal": USE["journal"]}
"""The metrics port answers other protocols as any HTTP server does."""
PAIRS = [
    (command, right, port) for right, commands in COMMANDS.items() for command in commands for port in HERE
    if port != right
]  # fmt: skip


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    peers: list[TcpPeers] = []

    async def start() -> None:
        peers.append(TcpPeers(LOOPBACK, random.Random(1)))
        await peers[0].start(Recorder("n1"))

    async def stop() -> None:
        await peers[0].close()

    thread = LoopThread(start, stop, "peers")
    with cli_node() as node:
        thread.run(asyncio.sleep(0))
        copy, metrics = unused_address(), unused_address()
        folder = tmp_path_factory.mktemp("copy")
        try:
            with _serving(folder, copy, node.endpoint, "--role=orders", "--primary", f"--metrics={metrics}"):
                yield {
                    "stream": node.endpoint, "http": node.http, "peer": peers[0].address, "journal": copy,
                    "metrics": metrics,
                }  # fmt: skip
        finally:
            thread.stop()


@pytest.fixture(scope="module")
def copy_of_bills(ports: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, address = tmp_path_factory.mktemp("bills"), unused_address()
    with _serving(folder, address, ports["stream"], "--role=bills", "--backup"):
        yield address


@contextmanager
def _serving(folder: Path, address: str, store: str, *options: str) -> Iterator[None]:
    """A copy of a journal, once it listens."""
    serving = subprocess.Popen(
        [sys.executable, "-m", "palisade.cli", "journal", "serve", "--name=a", f"--dir={folder}",
         f"--listen={address}", f"--endpoints={store}", *options],
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        _until_listening(serving)
        yield
    finally:
        serving.kill()
        serving.communicate()


def _until_listening(serving: subprocess.Popen[bytes]) -> None:
    assert serving.stderr is not None
    assert any(b"listening" in line for line in serving.stderr), f"the copy ended with {serving.wait()}"


@pytest.mark.parametrize(
    ("command", "right", "port"), PAIRS, ids=lambda each: each if isinstance(each, str) else "-".join(each[:2])
)
def test_command_at_the_port_of_another_protocol_names_the_port_to_use(
    command: tuple[str, ...], right: str, port: str, ports: Mapping[str, str]
) -> None:
    """`journal status` at a stream ended with a traceback, `put` at a journal tried again for 5 s."""
    began = time.monotonic()
    arguments = [each.format(port=ports[port], stream=ports["stream"]) for each in command]
    done = CliRunner().invoke(main, arguments)
    assert time.monotonic() - began < 3
    assert done.exception is None or isinstance(done.exception, SystemExit)
    shown = done.output
    here, use = HERE[port], USE[right]
    if port == "metrics" and right in AT_METRICS:
        here, use = "this is an HTTP address", AT_METRICS[right]
    assert done.exit_code == (0 if command[1] in REPORTS else 1), shown
    assert all(text in shown for text in (here, use, ports[port])), shown


def test_journal_client_uses_the_right_address_beside_a_wrong_one(ports: Mapping[str, str]) -> None:
    copies = f"--copies={ports['stream']},{ports['journal']}"
    done = CliRunner().invoke(main, ["journal", "append", "x", "--role=orders", copies])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", ["append", "read"])
def test_journal_client_uses_the_copy_of_its_role_beside_one_of_another_role(
    command: str, ports: Mapping[str, str], copy_of_bills: str
) -> None:
    """The first copy that refused the role ended the command."""
    copies = f"--copies={copy_of_bills},{ports['journal']}"
    entries = ["x"] if command == "append" else []
    done = CliRunner().invoke(main, ["journal", command, *entries, "--role=orders", copies])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", ["append", "read", "status"])
def test_role_that_no_copy_has_is_refused_with_the_roles_of_the_copies(
    command: str, ports: Mapping[str, str], copy_of_bills: str
) -> None:
    """`journal status` printed "unreachable" for each copy, and ended with 0."""
    copies = f"--copies={copy_of_bills},{ports['journal']}"
    entries = ["x"] if command == "append" else []
    refused = CliRunner().invoke(main, ["journal", command, *entries, "--role=wrong", copies, "--json"])
    assert (refused.exit_code, refused.stdout) == (1, ""), refused.output
    error = json.loads(refused.stderr)["error"]
    assert (error["code"], error["retry"]) == ("journal-wrong-role", False)
    for address, role in ((copy_of_bills, "bills"), (ports["journal"], "orders")):
        assert f"{address}: this is a copy of role {role}, not wrong" in error["message"]
    assert "palisade activation list" in error["message"]


def test_status_shows_a_copy_of_another_role_beside_one_of_the_role(
    ports: Mapping[str, str], copy_of_bills: str
) -> None:
    copies = f"--copies={copy_of_bills},{ports['journal']}"
    done = CliRunner().invoke(main, ["journal", "status", "--role=orders", copies, "--json"])
    assert done.exit_code == 0, done.output
    other, own = json.loads(done.stdout)["copies"]
    assert (other["state"], own["role"]) == ("wrong role", "orders")


@pytest.mark.parametrize("command", ["get /a", "status"])
def test_command_with_a_token_at_the_port_of_another_protocol_names_the_port_to_use(
    command: str, ports: Mapping[str, str], tmp_path: Path
) -> None:
    """The check of the cluster ID, before the token is sent, gave "HTTP 421 instead of the cluster ID"."""
    token = tmp_path / "token"
    token.write_text("a-token\ncluster-id: 0f\n")
    done = CliRunner().invoke(main, [*command.split(), f"--at={ports['stream']}", f"--token-file={token}"])
    assert done.exit_code == 1, done.output
    assert all(text in done.stderr for text in (HERE["stream"], USE["http"], ports["stream"])), done.stderr
