"""palisade lock and palisade elect: a command runs while the lock is held, and ends with it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from palisade.cli.main import main
from palisade.cli.waiting import NOTICE_S
from palisade.client import Client
from palisade.client.sync_client import SyncClient
from tests.support.cli_node import CliNode, cli_node
from tests.support.processes import runs

pytestmark = pytest.mark.e2e
"""Its holders are processes, which are killed."""
WITHIN_S = 20.0


@pytest.fixture
def node() -> Iterator[CliNode]:
    with cli_node() as started:
        yield started


def run(node: CliNode, *arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments, env={"PALISADE_ENDPOINTS": node.endpoint})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def start(node: CliNode) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    begun: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
        environment = {**os.environ, "PALISADE_ENDPOINTS": node.endpoint}
        command = [sys.executable, "-m", "palisade.cli", *arguments]
        begun.append(
            subprocess.Popen(
                command, env=environment, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_lock_runs_the_command_with_its_token_and_exits_with_its_code(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    process = start("lock", "/locks/a", "--", "sh", "-c", 'echo "$PALISADE_LOCK_KEY $PALISADE_LOCK_TOKEN"; exit 7')
    out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 7
    key, token = out.split()
    assert key.startswith("/locks/a/")
    assert int(token) > 1
    process = start("lock", "/locks/a", "--", "no-such-program")
    assert "cannot be started" in process.communicate(timeout=WITHIN_S)[1]
    assert process.returncode == 127


def test_lock_that_is_held_is_refused_after_the_wait(node: CliNode) -> None:
    with SyncClient(node.endpoint) as client, client.lock("/locks/a") as held:
        refused = run(node, "lock", "/locks/a", "--wait", "0", "--json", "--", "true")
        assert refused.exit_code == 1
        error = json.loads(refused.stderr)["error"]
        assert (error["code"], error["retry"]) == ("not-acquired", True)
        assert f"(token {held.token})" in error["message"]
    assert run(node, "lock", "/locks/a", "--wait", "0", "--", "true").exit_code == 0
    assert run(node, "lease", "list", "--json").stdout.strip() == '{"leases": []}'


def test_command_ends_when_its_lock_is_lost(
    node: CliNode, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    script = f"trap 'echo ended > {mark}; exit 0' TERM; echo held; while :; do sleep 0.05; done"
    process = start("lock", "/locks/a", "--ttl", "2", "--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    (lease,) = node.group.store.leases()
    run(node, "lease", "revoke", str(lease))
    _, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, mark.read_text()) == (3, "ended\n")
    assert f"lease {lease} is lost" in err


def test_holder_shows_no_notice_and_a_waiting_claim_names_the_one_before(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    """A holder wrote "waiting: no answer yet from the nodes" while its command ran (issue 16)."""
    holder = start("lock", "/locks/a", "--", "sh", "-c", 'echo "$PALISADE_LOCK_KEY"; read line', stdin=subprocess.PIPE)
    assert holder.stdout is not None
    key = holder.stdout.readline().strip()
    other = start("lock", "/locks/a", "--", "true")
    assert other.stderr is not None
    assert other.stderr.readline() == f"palisade: waiting: {key} is before this claim and is not released yet\n"
    time.sleep(2 * NOTICE_S)  # long enough for a notice of the holder
    _, err = holder.communicate("go on\n", timeout=WITHIN_S)
    assert (holder.returncode, err) == (0, "")
    other.communicate(timeout=WITHIN_S)
    assert other.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_lock_is_released_when_its_holder_gets_a_stop_signal(
    node: CliNode, start: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = start("lock", "/locks/a", "--json")
    assert process.stdout is not None
    shape = json.loads(process.stdout.readline())
    assert shape.keys() == {"key", "token", "lease"}
    assert node.group.store.leases() == (int(shape["lease"]),)
    process.send_signal(number)
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 128 + number
    assert node.group.store.leases() == ()


@pytest.mark.parametrize(("command", "what"), [("lock /locks/a", "lock"), ("elect /leader/a v", "leadership")])
def test_claim_that_cannot_be_released_is_reported_after_a_stop_signal(
    node: CliNode, start: Callable[..., subprocess.Popen[str]], command: str, what: str
) -> None:
    """With a frozen majority the command ended 2.1 s after Ctrl-C without a message (issue 16)."""
    process = start(*command.split(), "--ttl", "30")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    node.do(lambda: vars(node.group).update(leading=False))
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    notice = process.stderr.readline()
    if "cannot be renewed" in notice:
        notice = process.stderr.readline()
    assert time.monotonic() - began < 1
    assert notice.startswith(f"palisade: waiting: releasing the {what}; Ctrl-C exits at once (n1 knows no leader")
    *_, last = process.communicate(timeout=WITHIN_S)[1].splitlines()
    assert last.startswith(f"palisade: the {what} could not be released (no answer within 2 s): it expires with its")
    assert process.returncode == 128 + signal.SIGINT


def test_holder_that_cannot_renew_its_lease_shows_it_and_names_the_reason_at_the_end(
    node: CliNode, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """It was silent for 10 s, and its error named neither the lock nor the cause (issue 16)."""
    process = start("lock", "/locks/a", "--ttl", "3", "--", "sh", "-c", "echo held; exec sleep 60")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "held\n"
    node.do(lambda: vars(node.group).update(leading=False))
    began = time.monotonic()
    line = process.stderr.readline()
    assert time.monotonic() - began < 2
    assert line.startswith("palisade lock: the lease of the lock cannot be renewed: n1 knows no leader")
    *_, last = process.communicate(timeout=WITHIN_S)[1].splitlines()
    assert last.startswith("palisade: the lock was lost, and the command was ended: lease ")
    assert "n1 knows no leader" in last
    assert process.returncode == 3


def test_notice_on_a_terminal_is_erased_before_the_command_writes(node: CliNode) -> None:
    """It was erased afterwards, and the first output of the command with it (issue 16)."""
    own, terminal = pty.openpty()
    termios.tcsetwinsize(own, (24, 80))
    command = [sys.executable, "-m", "palisade.cli", "lock", "/locks/a", "--", "echo", "RESULT"]
    environment = {**os.environ, "PALISADE_ENDPOINTS": node.endpoint}
    with SyncClient(node.endpoint) as client:
        with client.lock("/locks/a"):
            process = subprocess.Popen(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal)
            shown = b""
            while b"is not released yet" not in shown:
                shown += os.read(own, 4096)
        assert process.wait(WITHIN_S) == 0
    os.close(terminal)
    while b"RESULT" not in shown:
        shown += os.read(own, 4096)
    os.close(own)
    before = shown.partition(b"RESULT")[0]
    assert before.endswith(b"\x1b[J"), before
    assert b"\x1b" not in shown.partition(b"RESULT")[2]


def test_claim_that_cannot_be_released_is_one_object_with_json(
    node: CliNode, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start("lock", "/locks/a", "--ttl", "30", "--json")
    assert process.stdout is not None
    assert process.stdout.readline()
    node.do(lambda: vars(node.group).update(leading=False))
    process.send_signal(signal.SIGINT)
    error = json.loads(process.communicate(timeout=WITHIN_S)[1])["error"]
    assert (error["code"], error["retry"]) == ("not-released", False)
    assert error["message"].startswith("the lock could not be released (no answer within 2 s): it expires with its")
    assert process.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize(("held", "line"), [(True, "the lock was not acquired"), (False, "the lock is released")])
def test_ctrl_c_ends_lock_with_a_line(start: Callable[..., subprocess.Popen[str]], held: bool, line: str) -> None:
    if held:
        holder = start("lock", "/locks/a")
        assert holder.stdout is not None
        assert holder.stdout.readline()
    process = start("lock", "/locks/a")
    first = process.stderr if held else process.stdout
    assert first is not None
    assert first.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=WITHIN_S)[1].splitlines()[-1] == f"palisade: {line}"
    assert process.returncode == 128 + signal.SIGINT


def test_second_stop_signal_leaves_the_claim_to_its_lease(
    node: CliNode, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start("lock", "/locks/a", "--ttl", "30")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    node.do(lambda: vars(node.group).update(leading=False))
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=WITHIN_S)
    assert time.monotonic() - began < 1
    assert err.splitlines()[-1].startswith("palisade: the lock could not be released (interrupted): it expires with")
    assert process.returncode == 128 + signal.SIGINT


def test_stop_signal_shows_that_the_command_has_not_ended(start: Callable[..., subprocess.Popen[str]]) -> None:
    """It was silent for 5 s, until SIGKILL."""
    process = start("lock", "/locks/a", "--", "sh", "-c", "trap '' TERM; echo held; exec sleep 60")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "held\n"
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    line = process.stderr.readline()
    assert time.monotonic() - began < 1
    assert line.startswith("palisade: waiting: the command has not ended yet; SIGKILL follows 5 s after SIGTERM")
    process.communicate(timeout=WITHIN_S)  # the pipes stay open as long as the command, which has 60 s without SIGKILL


def test_command_ends_when_its_holder_is_killed(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("lock", "/locks/a", "--", "sh", "-c", "echo $$; while :; do sleep 0.05; done")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.kill()
    until(lambda: not runs(child))


def test_elect_announces_the_leader_to_listeners(node: CliNode, start: Callable[..., subprocess.Popen[str]]) -> None:
    listener = start("elect", "/leader", "--listen", "--json")
    assert listener.stdout is not None
    assert json.loads(listener.stdout.readline()) == {"leader": None}
    leader = start("elect", "/leader", "n1")
    assert json.loads(listener.stdout.readline())["leader"]["value"] == "n1"

    async def value() -> bytes | None:
        async with Client(node.endpoint) as client:
            found = await client.leader("/leader")
            return None if found is None else found.value

    assert asyncio.run(value()) == b"n1"
    leader.terminate()
    assert json.loads(listener.stdout.readline()) == {"leader": None}


def test_elect_needs_a_value_or_listens(node: CliNode) -> None:
    assert run(node, "elect", "/leader").exit_code == 2
    assert run(node, "elect", "/leader", "n1", "--listen").exit_code == 2


def test_put_above_the_limit_is_refused(node: CliNode, tmp_path: Path) -> None:
    """It took the whole deadline and ended with exit code 4, outcome unknown (issue 16, 3)."""
    large = tmp_path / "large"
    large.write_bytes(b"v" * (4 << 20))
    refused = run(node, "put", "/large", "--file", str(large), "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stderr)["error"]["code"] == "request-too-large"
