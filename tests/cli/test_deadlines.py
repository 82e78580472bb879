"""Commands keep their deadline where nodes accept connections and answer nothing, as frozen ones do (issue 16)."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.base.frames import encode
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.cli.main import main
from palisade.cli.session import CliSession
from palisade.journal import local_file
from palisade.node.backup_file import BackupFile
from palisade.raftgroup.errors import OutcomeUnknown
from palisade.vault.errors import Fenced
from palisade.wire.credentials import StoredToken
from palisade.wire.segment_errors import BrokerNotSynced
from palisade.wire.stream_frames import FrameKind
from tests.support.cli_node import cli_node

backup_module: Any = importlib.import_module("palisade.cli.backup")
catalog_module: Any = importlib.import_module("palisade.cli.catalog")
login_module: Any = importlib.import_module("palisade.cli.login")
pipeline_module: Any = importlib.import_module("palisade.cli.pipeline")
segments_module: Any = importlib.import_module("palisade.cli.segments")
waiting_module: Any = importlib.import_module("palisade.cli.waiting")


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of a port that accepts everything and answers nothing."""
    server = await asyncio.start_server(lambda reader, writer: asyncio.sleep(3600), "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_backup_keeps_its_deadline_and_leaves_no_partial_file(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def urls_of(*_: Any) -> list[str]:
        return [f"http://{silent}", f"http://{silent}", f"http://{silent}"]

    monkeypatch.setattr(backup_module, "urls_of", urls_of)
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.1)
    session = CliSession([silent], 0.5, as_json=False)
    target = BackupFile(tmp_path / "backup", overwrite=False)
    began = time.monotonic()
    with pytest.raises(backup_module.BrokenOff, match=r"no backup began within 0\.5 s") as refused:
        await backup_module.take(session, target, False)
    target.discard()
    assert time.monotonic() - began < 0.5 * 3
    assert "not asked before the deadline of 0.5 s: http:" in str(refused.value)
    assert sorted(os.listdir(tmp_path)) == []
    assert f"palisade: waiting: no backup yet from http://{silent}" in capsys.readouterr().err


def test_catalog_operation_that_no_node_begins_ends_at_the_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    """Not after `--wait`: that is for operations that were begun."""

    async def never(_client: Any, _wait_s: float, timeout_s: float) -> Any:
        await asyncio.sleep(timeout_s)
        raise OutcomeUnknown("no answer in time")

    def call(action: Any, **_: Any) -> Any:
        return asyncio.run(action(None))

    began = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="--procedure p1 is safe to repeat"):
        catalog_module.follow(SimpleNamespace(deadline_s=0.3, call=call), "p1", 30.0, never)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("command", ["watch /k", "bench put", "load -", "lock /k -- true", "elect /k --listen"])
def test_command_fails_at_once_if_no_node_runs(command: str) -> None:
    """Those that do not end by themselves waited for their deadline."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    before, _, after = command.partition(" -- ")
    arguments = [*before.split(), "--timeout", "60", "--endpoints", address, *(["--", after] if after else [])]
    began = time.monotonic()
    done = CliRunner().invoke(main, arguments, input="")
    assert time.monotonic() - began < 15
    assert (done.exit_code, f"connections are refused at {address}" in done.stderr) == (3, True)


@pytest.fixture
def frozen() -> Iterator[str]:
    """The address of a port whose process accepts nothing: connections open, and stay silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def accepting(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that answers each connection in a thread."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                answer(server.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.fixture
def undecided() -> Iterator[str]:
    """The address of a node that cannot read the permissions, as its cluster has no leader. It tells its cluster."""
    reason = encode(FrameKind.REFUSED, {"reason": "it could not read the permissions", "code": "permissions-unknown"})
    welcome = encode(FrameKind.WELCOME, {"cluster_id": "id-1"})

    def answer(client: socket.socket) -> None:
        with client:
            client.sendall(welcome if b"identify" in client.recv(65536) else reason)

    with accepting(answer) as address:
        yield address


@pytest.fixture
def slow() -> Iterator[str]:
    """The address of a leader that answers no request."""
    welcome = encode(FrameKind.WELCOME, {"member": "n1", "leader": "n1", "streams": {}})
    clients = list[socket.socket]()

    def answer(client: socket.socket) -> None:
        clients.append(client)
        client.sendall(welcome)

    with accepting(answer) as address:
        yield address
    for client in clients:
        client.close()


@pytest.mark.parametrize("command", ["get /k", "lock /l -- true"])
def test_command_names_the_node_that_has_not_answered(
    command: str, slow: str, frozen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All given addresses were named (issue 16)."""
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.2)
    before, _, after = command.partition(" -- ")
    where = ["--timeout", "0.8", "--endpoints", f"{slow},{frozen}", *(["--", after] if after else [])]
    done = CliRunner().invoke(main, [*before.split(), *where])
    assert f"palisade: waiting: n1 at {slow} has not finished the request\n" in done.stderr


@pytest.mark.parametrize("command", ["put /k v", "get /k", "lease grant 60"])
def test_command_whose_leader_does_not_answer_continues_at_another_node(command: str, slow: str) -> None:
    """With the default deadline of 5 s a command ended as unknown when the leader froze: the client kept the connection
    for 5 s (issue 16)."""
    with cli_node() as node:
        assert CliRunner().invoke(main, ["put", "/k", "v", "--endpoints", node.endpoint]).exit_code == 0
        done = CliRunner().invoke(main, [*command.split(), "--endpoints", f"{slow},{node.endpoint}"])
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("command", ["status", "backup FILE"])
def test_command_gives_the_reason_of_a_node_that_runs_and_cannot_answer(
    command: str, undecided: str, frozen: str, tmp_path: Path
) -> None:
    """They said that no node runs there, and how to start one (issue 16)."""
    where = ["--timeout", "1", "--endpoints", f"{undecided},{frozen}"]
    done = CliRunner().invoke(main, [*command.replace("FILE", str(tmp_path / "b")).split(), *where])
    *_, error = done.stderr.splitlines()
    assert done.exit_code == 3
    assert "palisade up" not in error
    if command == "status":
        assert error == "palisade: no node can give its status; the output has the reasons"
        return  # the rows are those of the next test
    assert error.startswith("palisade: no node can answer: ")
    assert f"{undecided}: it could not read the permissions" in error
    assert f"{frozen}: no answer in time" in error


def test_status_shows_a_row_for_each_address_if_no_node_can_give_its_status(undecided: str, frozen: str) -> None:
    """With authorization and a frozen majority it showed no rows, though other commands refer to it."""
    command = ["status", "--timeout", "1", "--endpoints", f"{undecided},{frozen}"]
    header, *rows = CliRunner().invoke(main, command).stdout.splitlines()
    assert header == "address\tanswers\treason"
    assert [row.split("\t")[:2] for row in rows] == [[undecided, "yes"], [frozen, "no"]]
    assert ("it could not read the permissions" in rows[0], rows[1].split("\t")[2]) == (True, "no answer in time")
    shown = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)["nodes"]
    assert [(row["endpoint"], row["answers"]) for row in shown] == [(undecided, True), (frozen, False)]


@pytest.mark.parametrize("command", ["status", "backup FILE"])
def test_command_without_a_running_node_proposes_to_start_one(command: str, frozen: str, tmp_path: Path) -> None:
    where = ["--timeout", "1", "--endpoints", f"{frozen},127.0.0.1:9"]
    done = CliRunner().invoke(main, [*command.replace("FILE", str(tmp_path / "b")).split(), *where])
    assert done.exit_code == 3
    assert "no node can answer" not in done.stderr
    advice = f"the node at {frozen} may be frozen or busy: retry, start the others with 'palisade up', or give"
    assert command != "status" or advice in done.stderr


def test_request_that_no_node_can_answer_gives_the_reason_of_each(undecided: str, frozen: str) -> None:
    """Only the latest attempt was shown (issue 16)."""
    done = CliRunner().invoke(main, ["get", "/k", "--timeout", "2.5", "--endpoints", f"{undecided},{frozen}"])
    *_, error = done.stderr.splitlines()
    assert done.exit_code == 3
    assert f"{undecided}: it could not read the permissions" in error
    assert f"{frozen}: no answer in time" in error


def test_serializable_backup_names_the_way_without_a_majority(undecided: str, tmp_path: Path) -> None:
    """It advised a retry, which cannot help while the rights of the user cannot be verified (issue 16)."""
    command = f"backup {tmp_path}/b --serializable --timeout 1 --endpoints {undecided} --user root"
    done = CliRunner().invoke(main, command.split(), env={"PALISADE_PASSWORD": "secret"})
    assert "--serializable needs a majority as well, to verify the user; docs/operations.md" in done.stderr


@pytest.mark.parametrize(
    "command",
    ["put /k v", "get /k", "catalog create-database plant", "user add bob", "role add r", "lease grant 60", "status",
     "backup FILE"],
)  # fmt: skip
def test_command_with_a_token_names_the_frozen_nodes_and_is_not_unknown(
    command: str, undecided: str, frozen: str, tmp_path: Path
) -> None:
    """Changes of the catalog ended with code 4, and the message did not name the frozen nodes, whose cluster could not
    be checked (issue 16)."""
    token = tmp_path / "token"
    token.write_text("a-token\ncluster-id: id-1\n")
    where = ["--timeout", "1", "--endpoints", f"{frozen},{undecided}", "--token-file", str(token)]
    arguments = command.replace("FILE", str(tmp_path / "backup")).split()
    done = CliRunner().invoke(main, [*arguments, *where], input="a long password\n")
    *notices, error = done.stderr.splitlines()
    assert done.exit_code == 3, done.stderr
    reasons = done.stdout.replace("\tyes\t", ": ").replace("\tno\t", ": ") if command == "status" else error
    assert f"{undecided}: it could not read the permissions" in reasons
    assert f"{frozen}: no answer in time" in reasons
    assert all(f"{frozen}" in each for each in notices)


async def test_notice_names_the_addresses_whose_cluster_is_unknown_only(
    undecided: str, frozen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All addresses were named, also those that had answered (issue 16)."""
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.2)
    session = CliSession([undecided, frozen], 1.0, as_json=False, shown=StoredToken("t", "id-1", "token"))
    unreached: dict[str, str] = {}
    async with session.notice_of_check(unreached):
        assert await session.checked_endpoints(unreached) == [undecided]
    assert capsys.readouterr().err.splitlines()[0] == f"palisade: waiting: no cluster ID yet from {frozen}"
    assert unreached == {frozen: "no answer in time"}


AT = ["status", "topology", "fencing", "get /k", "range /k"]


@pytest.mark.parametrize("command", [f"{each} --at ADDRESS --timeout 0.3" for each in (*AT, "init n1")])
def test_command_that_asks_one_frozen_node_shows_that_it_waits(
    command: str, frozen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were silent for 5 s (issue 16), whatever --timeout they had."""
    shows_what_it_waits_for(command.replace("ADDRESS", frozen), frozen, monkeypatch)


@pytest.mark.parametrize("command", ["status", "watch /k", "bench put", "load -", "put /k v", "login --user u"])
def test_command_whose_nodes_are_frozen_shows_that_it_waits(
    command: str, frozen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALISADE_PASSWORD", "a long password")
    shows_what_it_waits_for(f"{command} --timeout 0.3 --endpoints {frozen}", frozen, monkeypatch)


@pytest.mark.parametrize("command", ["journal read", "journal append one"])
def test_command_whose_copies_of_a_journal_are_frozen_shows_that_it_waits(
    command: str, frozen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were silent for 10 s (issue 16)."""
    monkeypatch.setattr("palisade.journal.client.PATIENCE_S", 0.05)
    monkeypatch.setattr("palisade.journal.client.HELLO_S", 0.3)
    shows_what_it_waits_for(f"{command} --role orders --timeout 1 --copies {frozen}", frozen, monkeypatch)


@pytest.mark.parametrize(
    "command",
    [
        "put /k v",
        "lease revoke 5",
        "region set r /r/",
        "region change config --mode eventual",
        "region delete config",
        "catalog create-database plant",
        "catalog cancel c1",
        "load -",
        "lock /l -- true",
    ],
)
def test_change_without_a_leader_is_refused_and_not_unknown(command: str, frozen: str) -> None:
    """They ended with code 4: a node behind frozen ones gave them more time than the client had left (issue 16)."""
    before, _, after = command.partition(" -- ")
    with cli_node(deadline_s=5.0) as node:
        node.do(lambda: vars(node.group).update(leading=False))
        endpoints = f"{frozen},{frozen.replace('127.0.0.1', 'localhost')},{node.endpoint}"
        where = ["--timeout", "2", "--endpoints", endpoints]
        arguments = [*before.split(), *where, *(["--", after] if after else [])]
        done = CliRunner().invoke(main, arguments, input='{"key": "/k", "value": "v"}')
    assert (done.exit_code, "may or may not" in done.stderr) == (3, False), done.stderr


@pytest.mark.parametrize("options", ["show r --copy ADDRESS", "force r --copy DIR --without-store --compare ADDRESS"])
def test_activation_shows_that_it_waits_for_a_frozen_copy(
    options: str, frozen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were silent for the 3 s that a copy, or the metadata store, has for its answer (issue 16)."""
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.05)
    monkeypatch.setattr("palisade.cli.activation_copies.ASK_S", 0.6)
    monkeypatch.setattr("palisade.cli.activation.STORE_S", 0.6)
    (tmp_path / local_file.NAME).write_bytes(local_file.encode(local_file.LocalState("r")))
    with cli_node() as node:
        where = f"--endpoints {frozen if 'force' in options else node.endpoint}"
        text = f"activation {options} {where}".replace("ADDRESS", frozen).replace("DIR", str(tmp_path))
        done = CliRunner().invoke(main, text.split())
    assert f"palisade: waiting: no answer yet from the copies {frozen}\n" in done.stderr
    if "force" in options:
        assert f"palisade: waiting: no connection yet: {frozen}: no answer" in done.stderr


def test_backup_waits_for_the_addresses_that_have_not_answered(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All addresses were named (issue 16)."""
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.2)
    with cli_node() as node:
        where = ["--timeout", "4", "--endpoints", f"{node.endpoint},{frozen}"]
        done = CliRunner().invoke(main, ["backup", "-", *where])
    assert f"palisade: waiting: no answer yet from {frozen}" in done.stderr.splitlines()


async def test_http_timeout_is_not_rounded_up_to_a_whole_second(frozen: str) -> None:
    """`--at` of a frozen node took up to 6 s with `--timeout 5` (issue 16)."""
    async with HttpRequests(timeout_s=5.0) as requests:
        requests._opened()
        assert requests._session is not None
        assert requests._session.timeout.ceil_threshold > 3600


def test_login_keeps_its_deadline_at_frozen_members(frozen: str) -> None:
    """Each member had 20 s (issue 16)."""
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        asyncio.run(login_module.sign_in([frozen, "127.0.0.1:9", frozen], {}, 0.6))
    assert time.monotonic() - began < 3


async def test_login_gives_each_member_half_of_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[float]()

    async def silent(address: str, *_: Any, timeout_s: float, **__: Any) -> Any:
        given.append(timeout_s)
        raise NoAnswer(address, "no answer in time")

    monkeypatch.setattr(login_module, "ask", silent)
    with pytest.raises(NoAnswer, match="c:1"):
        await login_module.sign_in(["a:1", "b:1", "c:1"], {}, 8.0)
    assert given == pytest.approx([4.0, 4.0, 8.0], abs=0.5)


def shows_what_it_waits_for(command: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.05)
    began = time.monotonic()
    done = CliRunner().invoke(main, command.split())
    assert time.monotonic() - began < 3
    notice, *_ = [line for line in done.stderr.splitlines() if line.startswith("palisade: waiting: ")]
    assert address in notice
    assert done.exit_code in (3, 4)


@pytest.mark.parametrize("command", ["segments lookup flights --from 2013-03-01 --to 2013-03-02", "segments list"])
def test_lookup_that_is_refused_is_not_repeated_after_the_deadline(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two frozen nodes and --timeout 1 it was repeated for 5 s (issue 16)."""

    async def refused(*_: Any, **__: Any) -> Any:
        raise BrokerNotSynced("this node has not read the records of segments yet")

    monkeypatch.setattr("palisade.client.client.Client._call", refused)
    with cli_node() as node:
        began = time.monotonic()
        done = CliRunner().invoke(main, [*command.split(), "--timeout", "0.5", "--endpoints", node.endpoint])
    assert (done.exit_code, time.monotonic() - began < 3) == (3, True), done.stderr


def test_lookup_without_a_leader_names_the_nodes_that_do_not_answer(
    frozen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason was "the node is RECOVERING" (issue 16)."""

    async def refused(*_: Any, **__: Any) -> Any:
        raise Fenced("the range from palisade/segments/ can't be read from the vault now: the node is RECOVERING")

    monkeypatch.setattr("palisade.client.client.Client._call", refused)
    with cli_node() as node:
        node.do(lambda: setattr(node.group, "leading", False))
        where = ["--timeout", "1.5", "--endpoints", f"{node.endpoint},{frozen}"]
        lookup = ["segments", "lookup", "flights", "--from", "2013-03-01", "--to", "2013-03-02"]
        done = CliRunner().invoke(main, [*lookup, *where])
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1].startswith(
        "palisade: the deadline passed; nothing was done: n1 knows no leader, and no other node that knows one has "
        f"been found; {frozen}: no answer"
    )


@pytest.mark.parametrize("command", [("put", "/a", "1"), ("get", "/a"), ("ls",), ("lease", "grant", "5")])
def test_command_that_a_node_without_a_leader_refuses_names_the_nodes_that_do_not_answer(
    frozen: str, command: tuple[str, ...]
) -> None:
    """The refusal named none of them, unlike the client at its own deadline."""
    with cli_node() as node:
        node.do(lambda: setattr(node.group, "leading", False))
        where = ["--timeout", "1.5", "--endpoints", f"{node.endpoint},{frozen}"]
        done = CliRunner().invoke(main, [*command, *where])
    assert done.exit_code == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith("palisade: no ")
    assert last.endswith(f"; {frozen}: no answer; 'palisade status' shows which nodes answer")


async def test_nodes_are_asked_for_their_segments_within_the_deadline(frozen: str) -> None:
    """`segments assign --timeout 1` waited 3 s for each frozen node (issue 16)."""
    began = time.monotonic()
    assert await segments_module.ask_all({"n1": frozen}, 0.3) == {"n1": None}
    assert time.monotonic() - began < 2
