"""palisade backup and restore: what they print, their exit codes, and that nothing half is left (issue 3, "Bad input").

Real clusters are backed up and restored in tests/e2e/test_backups.py.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
from click.testing import CliRunner, Result

import palisade.metastore.backup
from palisade.cli.main import main
from palisade.metastore.backup import FORMAT_VERSION, HEADER, MAGIC, frame
from palisade.metastore.command_codec import encode_command
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.requests import Put
from palisade.metastore.snapshot import StoreSnapshotReader
from palisade.node import backup_file
from tests.support.cli_node import CliNode, cli_node
from tests.support.processes import free_port

KEYS = 30


async def open_copy(node: CliNode) -> StoreSnapshotReader:
    disk = MemoryStore("copy")
    disk.replace_content(node.group.store._tables.content())  # type: ignore[attr-defined]
    return await disk.open_snapshot()


@pytest.fixture(scope="module")
def node() -> Iterator[CliNode]:
    """With some pieces to back up."""
    nodes: list[CliNode] = []
    with cli_node(open_snapshot=lambda: open_copy(nodes[0])) as started:
        nodes.append(started)
        for number in range(KEYS):
            started.do(
                lambda number=number: started.group.apply([encode_command(Put(b"k/%d" % number, b"v" * 60_000))])
            )
        yield started


@pytest.fixture
def healthy(node: CliNode) -> Iterator[CliNode]:
    yield node
    node.do(lambda: vars(node.group).update(leading=True, majority=True))


def run(*arguments: str, stdin: bytes | None = None, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, list(arguments), input=stdin)
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == exit_code, result.output
    return result


def refused(*arguments: str, code: str, exit_code: int = 1, stdin: bytes | None = None) -> str:
    """The message of the one JSON object on stderr."""
    result = run(*arguments, "--json", exit_code=exit_code, stdin=stdin)
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error["code"] == code, error
    return str(error["message"])


@pytest.fixture
def take(node: CliNode, healthy: CliNode) -> Callable[..., Result]:
    def taking(*arguments: str, exit_code: int = 0) -> Result:
        return run("backup", *arguments, "--endpoints", node.endpoint, exit_code=exit_code)

    return taking


@pytest.fixture(scope="module")
def backup(node: CliNode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is whole."""
    file = tmp_path_factory.mktemp("backups") / "whole.backup"
    run("backup", str(file), "--endpoints", node.endpoint)
    return file


@contextmanager
def little_room(bytes_max: int) -> Iterator[None]:
    """No file of this process grows beyond that, as on a disk that is full. (Python ignores SIGXFSZ.)"""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) in (signal.SIG_IGN, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


# palisade backup


def test_backup_and_verify_print_the_same_content(take: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "b.backup"
    taken = json.loads(take(str(file), "--json").stdout)
    assert (taken["file"], taken["cluster"], taken["keys"], taken["revision"]) == (str(file), "demo", KEYS, KEYS + 1)
    assert taken["size_bytes"] > KEYS * 60_000
    verified = json.loads(run("backup", str(file), "--verify", "--json").stdout)
    assert verified == taken
    said = run("backup", str(file), "--verify").stdout
    assert said.startswith(f"{file}: revision {KEYS + 1} of demo (generation 1), {KEYS} keys, ")
    assert said.endswith("complete and verified\n")
    assert names(tmp_path) == ["b.backup"]


def test_backup_to_stdout_prints_only_its_bytes(take: Callable[..., Result], backup: Path) -> None:
    result = take("-")
    assert result.stdout_bytes[: len(MAGIC)] == MAGIC
    assert len(result.stdout_bytes) == backup.stat().st_size
    assert result.stderr.startswith("stdout: revision ")
    assert result.stderr.endswith("complete and verified\n")


def test_backup_to_stdout_with_json_prints_its_object_on_stderr(take: Callable[..., Result]) -> None:
    """It printed the text for people."""
    result = take("-", "--json")
    assert result.stdout_bytes[: len(MAGIC)] == MAGIC
    shape = json.loads(result.stderr)
    assert (shape["file"], shape["keys"], shape["size_bytes"]) == ("-", KEYS, len(result.stdout_bytes))


def test_existing_file_is_replaced_only_with_overwrite(take: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "b.backup"
    file.write_bytes(b"precious")
    assert "--overwrite" in take(str(file), exit_code=1).stderr
    assert file.read_bytes() == b"precious"
    take(str(file), "--overwrite")
    run("backup", str(file), "--verify")
    assert names(tmp_path) == ["b.backup"]


def test_refused_backup_overwrites_nothing(healthy: CliNode, tmp_path: Path) -> None:
    file = tmp_path / "b.backup"
    file.write_bytes(b"precious")
    healthy.do(lambda: vars(healthy.group).update(majority=False))
    where = ("--endpoints", healthy.endpoint)
    said = refused("backup", str(file), "--overwrite", *where, code="unreachable", exit_code=3)
    assert "Nothing was written" in said
    assert (file.read_bytes(), names(tmp_path)) == (b"precious", ["b.backup"])
    run("backup", str(file), "--overwrite", "--serializable", *where)


def test_backup_without_a_node_writes_nothing(tmp_path: Path) -> None:
    at = f"127.0.0.1:{free_port()}"
    said = refused("backup", str(tmp_path / "b"), "--endpoints", at, code="unreachable", exit_code=3)
    assert at in said
    assert names(tmp_path) == []


@pytest.mark.parametrize("path", ["none/b.backup", "file/b.backup", ".", "device"])
def test_unwritable_path_is_refused_before_a_request_is_sent(
    take: Callable[..., Result], tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`palisade backup .` ended with a traceback; with --overwrite, a device would have been replaced by a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "device").symlink_to("/dev/null")
    shown = take(path, "--overwrite", exit_code=1).stderr
    assert re.search(r"is a folder|is not a folder|there is no folder|is not a regular file", shown)
    assert names(tmp_path) == ["device", "file"]


@pytest.mark.parametrize("room", [0, 1, 100_000, 1_000_000])
def test_backup_on_a_full_disk_leaves_no_file(take: Callable[..., Result], tmp_path: Path, room: int) -> None:
    with little_room(room):
        result = take(str(tmp_path / "b.backup"), exit_code=1)
    assert "make room, or give another path" in result.stderr
    assert names(tmp_path) == []


def test_backup_that_reads_back_differently_is_refused(
    take: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again, from its first byte to its last, before it gets its name."""
    synced = os.fsync

    def spoil(number: int) -> None:
        synced(number)
        os.pwrite(number, b"?", 70_000)

    monkeypatch.setattr(os, "fsync", spoil)
    result = take(str(tmp_path / "b.backup"), exit_code=1)
    assert "b.backup.partial" in result.stderr
    assert names(tmp_path) == []


def test_backup_leaves_no_file_after_ctrl_c(
    take: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = sys.modules["palisade.cli.backup"]
    write, written = command.write, list[int]()

    def interrupt(target: Any, data: bytes) -> None:
        write(target, data)
        written.append(len(data))
        if sum(written) > 200_000:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "write", interrupt)
    result = take(str(tmp_path / "b.backup"), exit_code=130)
    assert (result.stdout, names(tmp_path)) == ("", [])
    assert "was not written" in result.stderr


def test_truncated_response_leaves_no_file(
    take: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Torn(palisade.metastore.backup.BackupEncoder):
        def piece(self, data: bytes) -> bytes:
            return super().piece(data)[:-1]

    monkeypatch.setattr(palisade.metastore.backup, "BackupEncoder", Torn)
    result = take(str(tmp_path / "b.backup"), exit_code=3)
    assert "it broke off after" in result.stderr
    assert names(tmp_path) == []


def test_second_backup_into_the_same_file_is_refused_at_once(take: Callable[..., Result], tmp_path: Path) -> None:
    first = backup_file.BackupFile(tmp_path / "b.backup")
    try:
        assert "another backup is being written" in take(str(tmp_path / "b.backup"), exit_code=1).stderr
        assert names(tmp_path) == ["b.backup.partial"]
    finally:
        first.discard()


# What is no backup, for both commands


def of_format(number: int) -> bytes:
    return MAGIC + frame(HEADER, msgpack.packb({"format": number, "created_by": "9.9.9"}))


BAD = {
    "empty": lambda whole: b"",
    "magic": lambda whole: MAGIC,
    "text": lambda whole: b"this is no backup\n" * 1000,
    "zeros": lambda whole: bytes(len(whole)),
    "cut off": lambda whole: whole[:-1],
    "half": lambda whole: whole[: len(whole) // 2],
    "changed": lambda whole: whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:],
    "longer": lambda whole: whole + b"x",
    "twice": lambda whole: whole + whole,
    "newer": lambda whole: of_format(FORMAT_VERSION + 1),
    "newest": lambda whole: of_format(2**62),
    "older than all": lambda whole: of_format(0),
    "format of another type": lambda whole: MAGIC + frame(HEADER, msgpack.packb({"format": "1"})),
    "huge frame": lambda whole: MAGIC + b"\xff" * 64,
}


@pytest.mark.parametrize("kind", BAD)
def test_damaged_backup_is_refused_and_restores_nothing(backup: Path, tmp_path: Path, kind: str) -> None:
    data = BAD[kind](backup.read_bytes())
    file = tmp_path / "bad.backup"
    file.write_bytes(data)
    folder = tmp_path / "d"
    messages = [
        refused("backup", str(file), "--verify", code="bad-backup"),
        refused("restore", str(file), "--data-dir", str(folder), code="bad-backup"),
        refused("restore", "-", "--data-dir", str(folder), code="bad-backup", stdin=data),
    ]
    assert all(str(file) in message for message in messages[:2])
    assert "the backup on stdin" in messages[2]
    if kind.startswith("new"):
        assert all("9.9.9" in message and "newer" in message for message in messages)
    assert (names(tmp_path), file.read_bytes()) == (["bad.backup"], data)


@pytest.mark.parametrize("what", ["missing", "folder", "unreadable"])
def test_unreadable_file_is_refused(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "b.backup"
    if what == "folder":
        file.mkdir()
    if what == "unreadable":
        file.touch()
        opened = Path.open

        def denied(self: Path, *arguments: Any, **more: Any) -> Any:
            if self == file:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return opened(self, *arguments, **more)

        monkeypatch.setattr(Path, "open", denied)
    before = names(tmp_path)
    assert "can't be read" in refused("backup", str(file), "--verify", code="bad-backup")
    assert "can't be read" in refused("restore", str(file), "--data-dir", str(tmp_path / "d"), code="bad-backup")
    assert names(tmp_path) == before


# palisade restore


def test_restore_prints_the_cluster_and_how_to_start_it(backup: Path, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    made = json.loads(run("restore", str(backup), "--data-dir", str(folder), "--nodes", "2", "--json").stdout)
    assert made == {
        "data_dir": str(folder), "cluster": "demo", "cluster_id": made["cluster_id"], "generation": 2,
        "revision": KEYS + 1, "keys": KEYS, "nodes": {name: str(folder / name / "data") for name in ("n1", "n2")},
    }  # fmt: skip
    said = run("restore", str(backup), "--data-dir", str(tmp_path / "one"), "--id", "n7", "--cluster", "copy").stdout
    assert "cluster copy, generation 2" in said
    assert "start it with 'palisade node --id n7 ...'" in said
    assert names(tmp_path) == ["d", "one"]


def test_restore_from_stdin_makes_the_same_cluster(backup: Path, tmp_path: Path) -> None:
    shape = run("restore", "-", "--data-dir", str(tmp_path / "d"), "--id", "n1", "--json", stdin=backup.read_bytes())
    assert json.loads(shape.stdout)["keys"] == KEYS


def test_restore_into_an_existing_folder_changes_nothing(backup: Path, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "precious").write_text("x")
    file = tmp_path / "file"
    file.touch()
    for wanted in (folder, file):
        assert "not empty" in refused("restore", str(backup), "--data-dir", str(wanted), code="not-restored")
    assert (names(tmp_path), names(folder)) == (["d", "file"], ["precious"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--id", "n1", "--nodes", "3"],
        ["--id", "n1", "--base-port", "7400"],
        ["--nodes", "many"],
        ["--generation", "x"],
        ["--nodes", "0"],
        ["--nodes", "10"],
        ["--base-port", "0"],
        ["--base-port", "65400"],
        ["--base-port", "-1"],
        ["--generation", "0"],
        ["--generation", "-5"],
        ["--generation", str(2**63)],
    ],
)
def test_restore_with_wrong_usage_creates_nothing(backup: Path, tmp_path: Path, arguments: list[str]) -> None:
    run("restore", str(backup), "--data-dir", str(tmp_path / "d"), *arguments, exit_code=2)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--id", "../n1"],
        ["--cluster", "a b"],
        ["--generation", "1"],
    ],
)
def test_restore_with_invalid_values_creates_nothing(backup: Path, tmp_path: Path, arguments: list[str]) -> None:
    refused("restore", str(backup), "--data-dir", str(tmp_path / "d"), *arguments, code="not-restored")
    assert names(tmp_path) == []


@pytest.mark.parametrize("room", [0, 10, 5_000, 100_000, 1_500_000])
def test_restore_on_a_full_disk_leaves_nothing(backup: Path, tmp_path: Path, room: int) -> None:
    with little_room(room):
        said = refused("restore", str(backup), "--data-dir", str(tmp_path / "d"), code="not-restored")
    assert said
    assert names(tmp_path) == []
    run("restore", str(backup), "--data-dir", str(tmp_path / "d"))


@pytest.mark.parametrize("step", ["copytree", "rename", "mkdir", "walk"])
def test_restore_leaves_nothing_after_a_disk_failure_at_any_step(
    backup: Path, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(*_: Any, **__: Any) -> Any:
        raise full

    made = Path.mkdir

    def mkdir(self: Path, *arguments: Any, **more: Any) -> None:
        if self.name == "content":
            raise full
        made(self, *arguments, **more)

    targets: dict[str, tuple[Any, str, Any]] = {
        "copytree": (shutil, "copytree", fail), "rename": (os, "rename", fail), "mkdir": (Path, "mkdir", mkdir),
        "walk": (os, "walk", fail),
    }  # fmt: skip
    monkeypatch.setattr(*targets[step])
    said = refused("restore", str(backup), "--data-dir", str(tmp_path / "d"), code="not-restored")
    assert "no space left on device" in said.lower()
    monkeypatch.undo()
    assert names(tmp_path) == []


@pytest.mark.parametrize("data_dir", ["none/d", "file/d"])
def test_restore_below_a_missing_folder_or_a_file(backup: Path, tmp_path: Path, data_dir: str) -> None:
    (tmp_path / "file").touch()
    wanted = tmp_path / data_dir
    if data_dir.startswith("file"):
        refused("restore", str(backup), "--data-dir", str(wanted), code="not-restored")
        assert names(tmp_path) == ["file"]
    else:
        run("restore", str(backup), "--data-dir", str(wanted))
        assert wanted.is_dir()


@pytest.mark.parametrize("after", [0, 1, 2])
def test_restore_leaves_nothing_after_ctrl_c(
    backup: Path, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = backup_file.read_parts

    def interrupted(path: Path) -> Iterator[bytes]:
        for number, part in enumerate(read(path)):
            if number == after:
                raise KeyboardInterrupt
            yield part
        raise KeyboardInterrupt

    monkeypatch.setattr(backup_file, "read_parts", interrupted)
    result = run("restore", str(backup), "--data-dir", str(tmp_path / "d"), exit_code=130)
    assert (result.stdout, names(tmp_path)) == ("", [])
    assert result.stderr == f"palisade: the restore was interrupted; {tmp_path / 'd'} was not written\n"
