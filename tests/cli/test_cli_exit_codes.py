"""Every documented exit code, each from a command that ends with it (issue 16, item 6)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from palisade.base.code_root import CODE_ROOT
from palisade.cli.main import main
from tests.support.cli_node import CliNode, cli_node

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
NOWHERE = "127.0.0.1:9"


@pytest.fixture
def node() -> Iterator[CliNode]:
    with cli_node() as node:
        yield node


def code_of(node: CliNode | None, *arguments: str) -> int:
    endpoint = NOWHERE if node is None else node.endpoint
    return CliRunner().invoke(main, arguments, env={"PALISADE_ENDPOINTS": endpoint}).exit_code


def done(node: CliNode) -> int:
    return code_of(node, "put", "/a", "x")


def refused(node: CliNode) -> int:
    return code_of(node, "get", "/missing")


def wrong_usage(node: CliNode) -> int:
    return code_of(node, "put", "/a")


def unavailable(node: CliNode) -> int:
    return code_of(None, "put", "/a", "x", "--timeout", "0.3")


def unknown(node: CliNode) -> int:
    node.do(lambda: setattr(node.group, "majority", False))
    return code_of(node, "put", "/a", "x", "--timeout", "0.5")


def interrupted(node: CliNode) -> int:
    """A watch that gets Ctrl-C once it has printed the first change."""
    assert done(node) == 0
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "palisade.cli", "watch", "/a", "--start-revision", "1"],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(CODE_ROOT), "PALISADE_ENDPOINTS": node.endpoint},
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        return process.wait(20)
    finally:
        process.kill()


CASES: dict[int, Callable[[CliNode], int]] = {
    0: done, 1: refused, 2: wrong_usage, 3: unavailable, 4: unknown, 130: interrupted,
}  # fmt: skip


def documented() -> set[int]:
    section = DOCUMENT.read_text().partition("## Exit codes")[2].partition("\n\n")[2].partition("\n\n")[0]
    return {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.M)}


def test_every_documented_exit_code_has_a_case() -> None:
    assert documented() == set(CASES)


@pytest.mark.parametrize("code", CASES)
def test_command_ends_with_the_documented_exit_code(node: CliNode, code: int) -> None:
    assert CASES[code](node) == code


# The same refusal has the same code over the stream and over HTTP.


COMMANDS = (["put", "/b", "x"], ["region", "set", "r", "/b/"], ["compact", "1"], ["backup"])
SECRET = {"PALISADE_USER": "bob", "PALISADE_PASSWORD": "bobs password"}


@pytest.fixture
def guarded() -> Iterator[CliNode]:
    with cli_node(guarded=True) as node:
        yield node


def as_bob(node: CliNode, command: list[str], folder: Path, **secret: str) -> Result:
    given = [*command, str(folder / "b")] if command == ["backup"] else command
    environ = {"PALISADE_ENDPOINTS": node.endpoint, **SECRET, **secret}
    return CliRunner().invoke(main, [*given, "--timeout", "0.5", "--json"], env=environ)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_without_the_right_is_refused(guarded: CliNode, tmp_path: Path, command: list[str]) -> None:
    """`backup` gave 3."""
    result = as_bob(guarded, command, tmp_path)
    assert (result.exit_code, json.loads(result.stderr)["error"]["code"]) == (1, "permission-denied"), result.output


@pytest.mark.parametrize(("user", "right"), [("bob", "read"), ("alice", "write")])
@pytest.mark.parametrize("command", [["lock", "/a/l"], ["elect", "/a/l", "value"]])
def test_claim_without_the_right_names_the_right_and_how_it_is_granted(
    guarded: CliNode, tmp_path: Path, command: list[str], user: str, right: str
) -> None:
    """It named the key of this attempt, /a/l/5a35ec181c4ef901 (issue 16)."""
    given = {"PALISADE_USER": user, "PALISADE_PASSWORD": f"{user}s password"}
    result = as_bob(guarded, [*command, "--wait", "1"], tmp_path, **given)
    error = json.loads(result.stderr)["error"]
    assert (result.exit_code, error["code"]) == (1, "permission-denied")
    missing = f"user {user} needs {right} on all keys that begin with /a/l/: a user with admin can grant it"
    assert error["message"].startswith(f"/a/l can't be acquired: {missing}. A claim needs read and write: ")
    assert "'palisade user grant-permission USER read /a/l/'" in error["message"]


@pytest.mark.parametrize("command", [*COMMANDS, ["status"]])
def test_command_with_a_wrong_password_is_refused(guarded: CliNode, tmp_path: Path, command: list[str]) -> None:
    result = as_bob(guarded, command, tmp_path, PALISADE_PASSWORD="a wrong password")
    assert (result.exit_code, json.loads(result.stderr)["error"]["code"]) == (1, "unauthenticated"), result.output


@pytest.mark.parametrize("command", [*COMMANDS, ["status"]])
def test_command_is_unavailable_while_permissions_are_unknown(
    guarded: CliNode, tmp_path: Path, command: list[str]
) -> None:
    rows = guarded.rows
    assert rows is not None
    rows.fenced = rows.cut_off = True
    assert as_bob(guarded, command, tmp_path).exit_code == 3
