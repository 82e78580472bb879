"""Old spellings work with a note; users and roles; completion; manual pages (issue 16)."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from palisade.cli.main import main
from palisade.cli.old_spellings import COMMANDS, OPTIONS, modern
from palisade.cli.realtime import columns_of
from palisade.cli.session import CliSession
from tests.support.cli_node import CliNode, cli_node

DOCUMENT = Path(__file__).parents[2] / "docs" / "vocabulary.md"


@pytest.fixture(scope="module")
def node() -> Iterator[CliNode]:
    with cli_node(deadline_s=2.0) as node:
        yield node


def invoke(node: CliNode, *arguments: str, stdin: str | None = None, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, arguments, input=stdin, env={"PALISADE_ENDPOINTS": node.endpoint})
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result


# Old spellings.


def test_old_spellings_are_rewritten_with_a_note() -> None:
    words, notes = modern(["watch", "/a", "--from-revision=3", "--deadline", "2"])
    assert words == ["watch", "/a", "--start-revision=3", "--timeout", "2"]
    assert notes[0].startswith("'--from-revision' is now '--start-revision'; the old spelling works until ")
    assert modern(["lease", "ttl", "5"])[0] == ["lease", "timetolive", "5"]
    assert modern(["delete", "/a"])[0] == ["del", "/a"]


def test_words_of_today_and_arguments_stay_as_they_are() -> None:
    for words in (["put", "--", "--deadline", "x"], ["put", "/a", "--from-revision"], ["region", "delete", "r"], []):
        assert modern(words) == (words, [])


def test_old_spellings_work_and_the_note_is_not_in_the_way_of_json(node: CliNode) -> None:
    invoke(node, "put", "/old", "1")
    result = invoke(node, "watch", "/old", "--from-revision", "1", "--revisions", "1", "--deadline", "3")
    assert "put\t/old\t1" in result.stdout
    assert result.stderr.count("the old spelling works until version") == 2
    assert invoke(node, "get", "/old", "--deadline", "3", "--json").stderr == ""
    lease = invoke(node, "lease", "grant", "60").stdout.strip()
    assert invoke(node, "lease", "ttl", lease).stdout.startswith(f"lease {lease}: ")


@pytest.mark.parametrize(
    ("text", "column", "noted"),
    [
        ("id:int", ("id", "int"), False),
        ("id=int", ("id", "int"), True),
        ("a=b:int", ("a=b", "int"), False),
        ("a:b:int", ("a:b", "int"), False),
        ("a:b=int", ("a:b", "int"), True),
    ],
)
def test_column_of_a_realtime_segment_is_spelled_as_that_of_a_table(
    capsys: pytest.CaptureFixture[str], text: str, column: tuple[str, str], *, noted: bool
) -> None:
    """One was NAME=TYPE, the other NAME:TYPE."""
    for as_json in (True, False):
        assert columns_of(CliSession([], 1.0, as_json), [text]) == dict([column])
        name, kind = column
        line = (
            f"palisade: '--column {text}' is now '--column {name}:{kind}'; the old spelling works until version 0.3\n"
        )
        assert capsys.readouterr().err == (line if noted and not as_json else "")


@pytest.mark.parametrize("text", ["id", ":int", "=int", "id:", "id="])
def test_column_without_name_or_type_is_wrong_usage(node: CliNode, text: str) -> None:
    arguments = "segments", "realtime", "append", "s", "-", "--from", "2013-03-01", "--to", "2013-03-02"
    result = invoke(node, *arguments, "--column", text, exit_code=2)
    assert f"--column {text}: give NAME:TYPE, such as id:int" in result.stderr


@pytest.mark.parametrize("form", ["then\nput /branch 1", '{"success": [{"txn": {"then": []}}]}'])
def test_old_names_of_branches_give_a_note(node: CliNode, form: str) -> None:
    assert invoke(node, "txn", stdin=form).stderr == (
        "palisade: 'then' is now 'success'; the old spelling works until version 0.3\n"
    )
    assert invoke(node, "txn", "--json", stdin=form).stderr == ""
    assert invoke(node, "txn", stdin="success\nput /branch 1").stderr == ""


def test_every_old_spelling_is_documented() -> None:
    text = DOCUMENT.read_text()
    assert all(f"`{' '.join(old)}`" in text for old in COMMANDS)
    assert all(f"`{old}`" in text for old in OPTIONS)


# Users and roles.


def test_users_and_roles_have_the_commands_of_etcdctl(node: CliNode) -> None:
    invoke(node, "user", "add", "ann", stdin="correct horse\n")
    invoke(node, "role", "add", "readers")
    invoke(node, "role", "grant-permission", "readers", "read", "/a/")
    invoke(node, "user", "grant-role", "ann", "readers")
    invoke(node, "user", "grant-permission", "ann", "write", "/a/b/")
    invoke(node, "user", "passwd", "ann", "--password-file", "-", stdin="battery staple\n")
    (line,) = invoke(node, "user", "list").stdout.splitlines()[1:]
    assert line.split("\t")[:2] == ["ann", "role readers, write on /a/b/"]
    role = json.loads(invoke(node, "role", "get", "readers").stdout)
    assert role["grants"] == [{"privilege": "read", "prefix": "/a/"}]
    assert json.loads(invoke(node, "user", "get", "ann", "--json").stdout)["roles"] == ["readers"]
    invoke(node, "user", "revoke-role", "ann", "readers")
    invoke(node, "user", "revoke-permission", "ann", "write", "/a/b/")
    invoke(node, "role", "revoke-permission", "readers", "read", "/a/")
    assert "no permissions" in invoke(node, "user", "list").stdout
    invoke(node, "role", "delete", "readers")
    assert json.loads(invoke(node, "user", "delete", "ann", "--json").stdout)["state"] == "done"
    assert invoke(node, "user", "list").stdout == invoke(node, "role", "list").stdout == "name\twhat\trevision\n"


def test_unknown_privilege_is_wrong_usage(node: CliNode) -> None:
    invoke(node, "user", "grant-permission", "ann", "fly", "/a/", exit_code=2)


# Completion and manual pages.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_PALISADE_COMPLETE" in result.stdout
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True)


def test_completion_in_fish_shows_descriptions_as_a_whole(tmp_path: Path) -> None:
    """They were cut at the first comma: "List" for "List, add, promote and remove members" (issue 16)."""
    script = CliRunner().invoke(main, ["completion", "fish"]).stdout
    assert 'string split -m 1 "," $completion' in script
    fish = shutil.which("fish")
    if fish is not None:
        program = tmp_path / "palisade"
        program.write_text("#!/bin/sh\nprintf 'plain,member\\tList, add and remove members.\\n'\n")
        program.chmod(0o755)
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
        typed = f'{script}\ncomplete -C "palisade mem"\n'
        done = subprocess.run([fish], input=typed, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["member\tList, add and remove members."]


def test_completion_proposes_commands() -> None:
    environ = {"_PALISADE_COMPLETE": "bash_complete", "COMP_WORDS": "palisade lea", "COMP_CWORD": "1"}
    result = CliRunner().invoke(main, [], env=environ, prog_name="palisade")
    assert result.stdout.split() == ["plain,lease"]


def test_every_command_has_a_manual_page(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["man", str(tmp_path / "man1")]).exit_code == 0
    pages = {file.name: file.read_text() for file in (tmp_path / "man1").iterdir()}
    assert {"palisade.1", "palisade-put.1", "palisade-lease-grant.1", "palisade-recover-quorum.1"} <= pages.keys()
    assert {f"palisade-{name}.1" for name in main.commands} <= pages.keys()
    page = pages["palisade-put.1"]
    assert page.startswith('.TH "PALISADE-PUT" 1 ')
    for part in (".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS", "\\-\\-prev\\-kv", ".nf"):
        assert part in page
    assert "outcome unknown" in pages["palisade.1"]


def test_manual_pages_are_valid_roff(tmp_path: Path) -> None:
    CliRunner().invoke(main, ["man", str(tmp_path)])
    for file in tmp_path.iterdir():
        for line in file.read_text().splitlines():
            requests = (".TH ", ".SH ", ".TP", ".B ", ".BR ", ".PP", ".nf", ".fi")
            assert not line.startswith(".") or line.startswith(requests), (file.name, line)
            assert not line.startswith("'"), (file.name, line)


@pytest.mark.parametrize(
    ("text", "why"), [("id:integer", "'integer' is not one of"), (f"{'x' * 300}:int", "has 300 characters")]
)
def test_column_that_no_node_accepts_is_wrong_usage(node: CliNode, text: str, why: str) -> None:
    """It was "columns.id: 'integer' is not one of ...", with exit code 1."""
    arguments = "segments", "realtime", "append", "s", "-", "--from", "2013-03-01", "--to", "2013-03-02"
    result = invoke(node, *arguments, "--column", text, exit_code=2)
    assert f"palisade: --column {text}: " in result.stderr
    assert why in result.stderr
