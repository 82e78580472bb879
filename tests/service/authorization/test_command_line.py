"""Credentials of the command line: options before the environment, a user before a token; `palisade login`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from palisade.cli.credentials import credentials_from
from palisade.cli.login import write_private
from palisade.cli.main import main
from palisade.wire.credentials import Credentials, Password, Token, node_proof
from tests.support.cli_node import cli_node

SECRET = {"PALISADE_PASSWORD": "alices password"}


@pytest.mark.parametrize(
    ("user", "token_file", "environ", "expected"),
    [
        (None, None, {}, None),
        ("alice", None, SECRET, Password("alice", "alices password")),
        (None, None, {"PALISADE_USER": "bob", **SECRET}, Password("bob", "alices password")),
        ("alice", None, {"PALISADE_USER": "bob", **SECRET}, Password("alice", "alices password")),
        (None, "token", {"PALISADE_USER": "bob", **SECRET}, Token("pt1.a.b")),
        (None, None, {"PALISADE_TOKEN_FILE": "token"}, Token("pt1.a.b")),
        ("alice", None, {"PALISADE_PASSWORD_FILE": "token"}, Password("alice", "pt1.a.b")),
        ("alice", None, {"PALISADE_PASSWORD": "", "PALISADE_PASSWORD_FILE": "token"}, Password("alice", "pt1.a.b")),
        (None, None, {"PALISADE_JOIN_TOKEN": "a join token"}, node_proof("a join token")),
        (None, None, {"PALISADE_JOIN_TOKEN": "a join token", "PALISADE_USER": "bob", **SECRET},
         Password("bob", "alices password")),
    ],
)  # fmt: skip
def test_credentials_are_taken_from_options_before_environment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: str | None,
    token_file: str | None,
    environ: Mapping[str, str],
    expected: Credentials | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("token").write_text("pt1.a.b\n")
    assert credentials_from(user, token_file, environ) == expected


@pytest.mark.parametrize(
    ("user", "token_file", "text"),
    [("alice", None, "PALISADE_PASSWORD"), (None, "none", "cannot be read"), ("alice", "token", "either")],
)
def test_incomplete_credentials_are_wrong_usage(user: str | None, token_file: str | None, text: str) -> None:
    with pytest.raises(click.UsageError, match=text):
        credentials_from(user, token_file, {}, ask=False)


def test_token_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600


def test_login_without_authorization_is_refused() -> None:
    with cli_node() as node:
        found = CliRunner().invoke(main, ["login", "--user", "alice", "--at", node.http], env=SECRET)
    assert found.exit_code == 1
    assert "without signing in" in found.output


def test_credentials_are_ignored_without_authorization() -> None:
    with cli_node() as node:
        at = ["--endpoints", node.endpoint, "--user", "alice"]
        assert CliRunner().invoke(main, ["put", "/a", "v", *at], env=SECRET).exit_code == 0
        assert CliRunner().invoke(main, ["status", *at], env=SECRET).exit_code == 0
        assert CliRunner().invoke(main, ["status", "--at", node.http, "--user", "alice"], env=SECRET).exit_code == 0


def test_login_refuses_a_token_file_that_has_no_folder(tmp_path: Path) -> None:
    """Issue 16: it signed in, and then ended with a traceback."""
    file = tmp_path / "none" / "token"
    command = ["login", "--user", "alice", "--token-file", str(file), "--endpoints", "127.0.0.1:1"]
    ended = CliRunner().invoke(main, command, env=SECRET)
    assert (ended.exit_code, ended.output) == (
        1, f"palisade: there is no folder {file.parent}: create it, or give another file\n",
    )  # fmt: skip


@pytest.mark.parametrize("command", ["user add x", "user passwd x", "catalog create-user x"])
@pytest.mark.parametrize("characters", [5, 300, 5_000_000])
def test_new_password_of_a_wrong_length_is_refused_with_the_allowed_length(
    tmp_path: Path, command: str, characters: int
) -> None:
    """A file of 5 MB was refused because of the size of the request."""
    file = tmp_path / "password"
    file.write_text("x" * characters + "\n")
    with cli_node() as node:
        arguments = [*command.split(), "--password-file", str(file), "--endpoints", node.endpoint]
        done = CliRunner().invoke(main, arguments)
    named = "--password-file" if command.startswith("catalog") else "password"
    text = f"palisade: {named}: has {characters} characters, allowed are 8 to 256\n"
    assert (done.exit_code, done.stderr) == (1, text)


@pytest.mark.parametrize("command", ["get /a", "login"])
def test_password_or_token_of_a_wrong_length_is_not_sent(tmp_path: Path, command: str) -> None:
    """The node refused the connection, without the reason."""
    file = tmp_path / "secret"
    file.write_text("x" * 5_000_000 + "\n")
    arguments = [*command.split(), "--user", "alice", "--endpoints", "127.0.0.1:1"]
    done = CliRunner().invoke(main, arguments, env={"PALISADE_PASSWORD_FILE": str(file)})
    named = f"the password file {file} (from PALISADE_PASSWORD_FILE)"
    assert done.exit_code == 2
    assert f"palisade: {named} has 5000000 characters, allowed are 8 to 256" in done.stderr
    with pytest.raises(click.UsageError, match="PALISADE_PASSWORD has 300 characters, allowed are 8 to 256"):
        credentials_from("alice", None, {"PALISADE_PASSWORD": "x" * 300})
    with pytest.raises(click.UsageError, match=f"the token file {file} has 5000000 characters in its first line"):
        credentials_from(None, str(file), {})
