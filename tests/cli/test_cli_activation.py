"""palisade activation: which copy of a role counts (A4, issue 17; docs/activation.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from palisade.base.directory_lock import DirectoryLock
from palisade.catalog.activation import ActivationRecord, ClaimState, LocalSequence, record_key
from palisade.catalog.forced_activation import AUDIT_FILE
from palisade.cli.main import main
from palisade.journal.local_file import NAME, LocalState, decode, encode
from tests.support.cli_node import CliNode

Run = Callable[..., Result]
ROLE = "orders"


@pytest.fixture
def run(shared: CliNode) -> Iterator[Run]:
    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(main, arguments, env={"PALISADE_ENDPOINTS": shared.endpoint})
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    yield invoke
    invoke("del", "activation/", "--prefix")


def printed(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def copy(folder: Path, sequence: int, *, epoch: int = 1, filling: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    local = LocalSequence(sequence, epoch) if sequence else None
    (folder / NAME).write_bytes(encode(LocalState(ROLE, local, filling)))
    return folder


def local_of(folder: Path) -> LocalSequence | None:
    return decode((folder / NAME).read_bytes(), NAME).local


def agree(run: Run, sequence: int, owner: str = "a") -> None:
    record = ActivationRecord(ROLE, sequence, ClaimState.COMMITTED, owner, sequence, 1)
    assert run("put", record_key(ROLE).decode(), record.to_bytes().decode()).exit_code == 0


def force(run: Run, folder: Path, *arguments: str) -> Any:
    return run("activation", "force", ROLE, "--copy", str(folder), *arguments, "--json")


def test_roles_are_listed_and_each_copy_is_judged(run: Run, tmp_path: Path) -> None:
    agree(run, 4)
    newest, older = copy(tmp_path / "a", 4), copy(tmp_path / "b", 3)
    assert printed(run("activation", "list", "--json"))["roles"][0]["record"]["sequence"] == 4
    assert f"{ROLE}\t4\tcommitted\ta" in run("activation", "list").stdout
    found = printed(run("activation", "show", ROLE, "--copy", str(newest), "--copy", str(older), "--json"))
    assert [each["sequence"] for each in found["copies"]] == [4, 3]
    assert found["copies"][0]["decision"] == "it may become active"
    assert found["copies"][1]["decision"].startswith("it follows: its sequence 3 (epoch 1) is older than 4")
    text = run("activation", "show", ROLE, "--copy", str(tmp_path / "nowhere")).stdout
    assert "sequence 4, committed by a" in text
    assert text.count("is not a directory") == 1


def test_older_copy_is_forced_only_if_asked_for(run: Run, tmp_path: Path) -> None:
    agree(run, 4)
    older, newer = copy(tmp_path / "a", 3), copy(tmp_path / "b", 4)
    refused = force(run, older, "--compare", str(newer), "--yes")
    assert refused.exit_code == 1
    assert "is not the newest copy" in json.loads(refused.stderr)["error"]["message"]
    assert local_of(older) == LocalSequence(3, 1)
    done = force(run, older, "--compare", str(newer), "--use-older-copy", "--yes")
    assert "entries that only it has are lost" in done.stderr
    assert (printed(done)["sequence"], printed(done)["older"]) == (5, True)
    assert local_of(older) == LocalSequence(5, 1)
    found = printed(run("activation", "show", ROLE, "--copy", str(older), "--copy", str(newer), "--json"))
    assert (found["record"]["sequence"], found["record"]["state"], found["record"]["owner"]) == (5, "committed", "a")
    assert found["copies"][0]["decision"] == "it may become active"
    assert "it follows" in found["copies"][1]["decision"]
    assert [each["compared"] for each in found["forced"]] == [
        [f"{older}: sequence 3 (epoch 1)", f"{newer}: sequence 4 (epoch 1)"]
    ]


def test_force_states_what_it_gives_up_and_needs_a_confirmation(run: Run, tmp_path: Path) -> None:
    folder = copy(tmp_path / "a", 3)
    unconfirmed = force(run, folder)
    assert unconfirmed.exit_code == 2
    assert "no record of the role" in unconfirmed.stderr
    assert local_of(folder) == LocalSequence(3, 1)


def test_force_without_lost_entries_mentions_none(run: Run, tmp_path: Path) -> None:
    """It was "read which entries are lost", and none were listed."""
    agree(run, 3)
    unconfirmed = force(run, copy(tmp_path / "a", 3))
    assert json.loads(unconfirmed.stderr)["error"]["message"] == "nothing was changed; confirm with --yes"


def test_declined_force_states_that_nothing_was_changed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agree(run, 3)
    folder = copy(tmp_path / "a", 3)
    monkeypatch.setattr("palisade.cli.activation.is_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    declined = run("activation", "force", ROLE, "--copy", str(folder))
    assert (declined.exit_code, declined.stderr) == (1, "palisade: nothing was changed\n")
    assert local_of(folder) == LocalSequence(3, 1)


def test_force_while_the_store_is_down_names_the_option_for_that(run: Run, tmp_path: Path) -> None:
    down = force(run, copy(tmp_path / "a", 3), "--yes", "--endpoints", "127.0.0.1:1", "--timeout", "0.3")
    assert (down.exit_code, "give --without-store" in down.stderr) == (3, True)


def test_place_that_is_no_directory_is_answered_with_what_the_option_takes(run: Run, tmp_path: Path) -> None:
    """--copy of force takes no address; --copy of show and --compare do."""
    wrong = f"{tmp_path / 'no'} is not a directory: give the --dir of 'palisade journal serve'"
    assert json.loads(force(run, tmp_path / "no", "--yes").stderr)["error"]["message"] == wrong
    assert f"{wrong}, or an address" in run("activation", "show", ROLE, "--copy", str(tmp_path / "no")).stdout


@pytest.mark.parametrize("command", [["force", "--yes"], ["force", "--yes", "--without-store"], ["reconcile"]])
def test_directory_that_is_no_copy_is_refused_and_not_changed(run: Run, tmp_path: Path, command: list[str]) -> None:
    """Any directory was taken for a copy without a sequence: force wrote to it, and recorded its name as the owner."""
    refused = run("activation", command[0], ROLE, "--copy", str(tmp_path), *command[1:])
    assert refused.exit_code == 1
    assert f"{tmp_path} is not a copy of role {ROLE}, it has no {NAME}: give the --dir of" in refused.stderr
    assert list(tmp_path.iterdir()) == []
    assert "no such role" in run("activation", "show", ROLE).stdout


def test_force_is_not_compared_with_a_directory_that_is_no_copy(run: Run, tmp_path: Path) -> None:
    """It counted as an older copy."""
    agree(run, 3)
    (tmp_path / "other").mkdir()
    unconfirmed = force(run, copy(tmp_path / "a", 3), "--compare", str(tmp_path / "other"))
    assert f"{tmp_path / 'other'} is not a copy of role {ROLE}" in unconfirmed.stderr


def test_copy_without_entries_and_sequence_can_be_forced(run: Run, tmp_path: Path) -> None:
    """`journal serve` has run on its directory, and no copy has been active."""
    folder = copy(tmp_path / "a", 0)
    assert printed(force(run, folder, "--yes"))["sequence"] == 1
    assert local_of(folder) == LocalSequence(1, 1)


def test_role_that_the_store_does_not_have_is_shown_as_such(run: Run) -> None:
    """A typo was answered with "no agreed sequence; the configured primary begins"."""
    shown = run("activation", "show", "nope")
    assert shown.stdout.startswith("nope: the store has no such role: none of its copies")


def test_sequence_is_never_lowered(run: Run, tmp_path: Path) -> None:
    agree(run, 9)
    folder = copy(tmp_path / "a", 9)
    assert "never lowered" in force(run, folder, "--sequence", "9", "--yes").stderr
    assert printed(force(run, folder, "--sequence", "50", "--yes"))["sequence"] == 50
    assert local_of(folder) == LocalSequence(50, 1)


def test_copy_of_a_running_process_is_not_forced(run: Run, tmp_path: Path) -> None:
    agree(run, 4)
    folder = copy(tmp_path / "a", 4)
    lock = DirectoryLock(folder, RuntimeError)
    try:
        refused = force(run, folder, "--yes")
    finally:
        lock.release()
    assert (refused.exit_code, "stop 'palisade journal serve' first" in refused.stderr) == (1, True)


@pytest.mark.parametrize("content", [b"", b"{}", encode(LocalState("other", None))])
def test_copy_that_cannot_be_read_is_not_forced(run: Run, tmp_path: Path, content: bytes) -> None:
    agree(run, 4)
    folder = copy(tmp_path / "a", 4)
    (folder / NAME).write_bytes(content)
    refused = force(run, folder, "--use-older-copy", "--yes")
    assert refused.exit_code == 1
    assert (folder / NAME).read_bytes() == content


def test_force_without_the_store_is_refused_while_it_answers(run: Run, tmp_path: Path) -> None:
    folder = copy(tmp_path / "a", 4)
    assert "the metadata store answers" in force(run, folder, "--without-store", "--yes").stderr
    assert local_of(folder) == LocalSequence(4, 1)


def test_force_without_the_store_is_reconciled_when_it_is_back(run: Run, tmp_path: Path) -> None:
    agree(run, 4)
    folder = copy(tmp_path / "a", 4)
    nowhere = ("--without-store", "--yes", "--endpoints", "127.0.0.1:1", "--timeout", "0.3")
    done = force(run, folder, *nowhere)
    assert "keep every other copy stopped" in done.stderr
    assert (printed(done)["sequence"], printed(done)["agreed"]) == (5, None)
    assert (local_of(folder), (folder / AUDIT_FILE).exists()) == (LocalSequence(5, 1), True)
    found = printed(run("activation", "reconcile", ROLE, "--copy", str(folder), "--json"))
    assert found["sequence"] == 5
    shown = printed(run("activation", "show", ROLE, "--copy", str(folder), "--json"))
    assert (shown["record"]["sequence"], shown["copies"][0]["decision"]) == (5, "it may become active")
    assert [each["agreed"] for each in shown["forced"]] == [None]
    assert not (folder / AUDIT_FILE).exists()
    assert "nothing to reconcile" in run("activation", "reconcile", ROLE, "--copy", str(folder)).stdout


def test_reconciliation_stops_if_another_copy_was_activated_meanwhile(run: Run, tmp_path: Path) -> None:
    folder = copy(tmp_path / "a", 4)
    force(run, folder, "--without-store", "--yes", "--endpoints", "127.0.0.1:1", "--timeout", "0.3")
    agree(run, 5, "b")
    refused = run("activation", "reconcile", ROLE, "--copy", str(folder))
    assert refused.exit_code == 1
    assert "both may have served" in refused.stderr
    assert (folder / AUDIT_FILE).exists()
