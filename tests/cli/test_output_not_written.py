"""Output that cannot be written: the exit code does not claim that nothing was changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from palisade.base.code_root import CODE_ROOT
from tests.support.cli_node import CliNode

FULL = Path("/dev/full")
NO_ROOM = "the output can't be written: no space left on device"


def ended(node: CliNode, *words: str, stdout: Path = FULL, stderr: Path | None = None) -> tuple[int, str]:
    """The exit code and stderr of a command."""
    command = [sys.executable, "-m", "palisade.cli", *words]
    with stdout.open("wb") as out, (stderr or Path("/dev/null")).open("wb") as err:
        done = subprocess.run(
            command,
            stdout=out,
            stderr=err if stderr else subprocess.PIPE,
            env={"PALISADE_ENDPOINTS": node.endpoint, "PATH": ""},
            cwd=CODE_ROOT,
            timeout=30,
            check=False,
        )
    return done.returncode, (done.stderr or b"").decode()


@pytest.mark.parametrize(
    ("words", "executed"),
    [
        (("put", "/a", "b"), True),
        (("get", "/k"), True),
        (("ls", "/k", "-o", "csv"), True),
        (("member", "list"), True),
        (("del", "/none", "/nonf"), True),
        (("scenario", "list"), True),
        (("completion", "bash"), False),
        (("--version",), False),
        (("put", "--help"), False),
    ],
)
def test_output_on_a_full_disk_ends_with_four_and_one_line(node: CliNode, words: Sequence[str], executed: bool) -> None:
    """`palisade put /a b > /dev/full` printed a traceback and ended with 1, "refused", though the write was applied."""
    assert ended(node, "put", "/k", "x", stdout=Path("/dev/null"))[0] == 0
    code, shown = ended(node, *words)
    assert (code, shown) == (4, f"palisade: {'the request was executed, but ' if executed else ''}{NO_ROOM}\n")


def test_write_whose_result_cannot_be_printed_is_applied(node: CliNode) -> None:
    code, shown = ended(node, "put", "/applied", "yes", "--json")
    error = json.loads(shown)["error"]
    assert (code, error["code"], error["retry"]) == (4, "output-not-written", False)
    assert ended(node, "get", "/applied", stdout=Path("/dev/null"))[0] == 0


def test_error_that_cannot_be_printed_keeps_its_exit_code(node: CliNode) -> None:
    """It was 1 for every error."""
    assert ended(node, "put", "/a", "b", "--endpoints", "127.0.0.1:9", stderr=FULL)[0] == 3


def test_error_of_a_command_stands_if_its_output_is_lost_too(node: CliNode) -> None:
    code, shown = ended(node, "get", "/missing")
    assert code == 1
    assert NO_ROOM not in shown


def test_characters_that_the_terminal_lacks_are_escaped() -> None:
    """Issue 16: `palisade ls /ü` ended with a UnicodeEncodeError."""
    program = "from palisade.cli.output import guard; guard(); print('/\\u00fc')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"/\\xfc\n")
