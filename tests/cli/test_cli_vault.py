"""palisade vault inspect, verify, export, reset (issue 3): on a vault in a folder, without any node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.base.code_root import CODE_ROOT
from palisade.cli.main import main
from palisade.vault.directory import DATA
from palisade.vault.fence_file import FENCE_FILE, FenceFile, clock_ns
from palisade.vault.opening import open_vault
from palisade.vault.position import VaultLineage
from tests.support.vault_feed import follow, full


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of node n1 with three keys in its vault, one of which is no text."""
    vault = open_vault(tmp_path / "vault")
    vault.claim(VaultLineage("c1", 2, "n1"))
    vault.set_config({"rack": b"r7"})
    follow(vault, full([(b"/a", b"1"), (b"/b", b"\xff\x00"), (b"/c", b"3")]))
    vault.close()
    return tmp_path


def run(*arguments: str, exit_code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["vault", *arguments])
    assert "Traceback" not in result.output
    assert result.exit_code == exit_code, result.output
    return result


def said(*arguments: str, exit_code: int = 0) -> Any:
    """The JSON of the answer, or of the refusal."""
    result = run(*arguments, "--json", exit_code=exit_code)
    return json.loads(result.stderr if exit_code else result.stdout)


def test_inspect_prints_owner_and_revision(folder: Path) -> None:
    shape = said("inspect", "--data-dir", str(folder))
    assert shape["lineage"] == {"cluster_id": "c1", "generation": 2, "node_id": "n1"}
    assert (shape["revision"], shape["keys"], shape["recovering"], shape["config"]) == (4, 3, None, {"rack": "r7"})
    assert "of node n1 in cluster c1, generation 2, LV 4, 3 keys" in run("inspect", "--data-dir", str(folder)).stdout


def test_inspect_prints_whether_the_vault_may_be_served(folder: Path) -> None:
    """Issue 4: the fence page, from another process than the node's."""
    stopped = {"trusted": False, "state": "FENCED", "term": 0, "released": 0}
    assert said("inspect", "--data-dir", str(folder))["fence"] == stopped
    page = FenceFile(folder / "vault").page
    page.release(4)
    page.serve(clock_ns() + 10**13, 7)
    served = {"trusted": True, "state": "ACTIVE", "term": 7, "released": 4}
    assert said("inspect", "--data-dir", str(folder))["fence"] == served
    assert (
        "its fence is ACTIVE: its content may be served now, RR 4" in run("inspect", "--data-dir", str(folder)).stdout
    )
    (folder / "vault" / FENCE_FILE).write_bytes(b"no page")
    assert said("inspect", "--data-dir", str(folder))["fence"] is None


def test_verify_detects_a_changed_byte(folder: Path) -> None:
    assert said("verify", "--data-dir", str(folder)) == {"path": str(folder / "vault"), "keys": 3, "sound": True}
    data = folder / "vault" / DATA
    data.write_bytes(data.read_bytes().replace(b"/c3", b"/c4"))
    error = said("verify", "--data-dir", str(folder), exit_code=1)
    assert error["error"]["code"] == "vault-damaged"
    assert "palisade vault reset" in error["error"]["message"]


def test_export_is_valid_input_for_load(folder: Path) -> None:
    from palisade.cli.ndjson import read_entries

    file = folder / "out.ndjson"
    assert said("export", str(file), "--data-dir", str(folder)) == {
        "file": str(file), "keys": 3, "revision": 4, "omitted": 0
    }  # fmt: skip
    entries = read_entries(file.read_bytes().splitlines())
    assert [(entry.key, entry.value) for entry in entries] == [(b"/a", b"1"), (b"/b", b"\xff\x00"), (b"/c", b"3")]
    assert run("export", "-", "--data-dir", str(folder)).stdout_bytes == file.read_bytes()


def test_export_leaves_out_the_keys_of_the_cluster_unless_all_are_wanted(tmp_path: Path) -> None:
    """`load` refused the file, because users may not write these keys."""
    vault = open_vault(tmp_path / "vault")
    vault.claim(VaultLineage("c1", 2, "n1"))
    follow(vault, full([(b"/a", b"1"), (b"palisade", b"2"), (b"palisade/x", b"3"), (b"palisade/y", b"4")]))
    vault.close()
    file, where = tmp_path / "e", ("--data-dir", str(tmp_path))

    def keys() -> list[str]:
        return [json.loads(line)["key"] for line in file.read_bytes().splitlines()]

    shape = {"file": str(file), "keys": 2, "revision": 5, "omitted": 2}
    assert (said("export", str(file), *where), keys()) == (shape, ["/a", "palisade"])
    shape |= {"keys": 4, "omitted": 0}
    assert said("export", str(file), "--all", "--overwrite", *where) == shape
    assert keys() == ["/a", "palisade", "palisade/x", "palisade/y"]
    text = "2 keys of revision 5; 2 keys of the cluster itself are not included (--all includes them)\n"
    assert run("export", str(file), "--overwrite", *where).stdout == f"{file}: {text}"
    assert run("export", "-", *where).stderr == f"stdout: {text}"
    assert run("export", "-", "--all", *where).stderr == "stdout: 4 keys of revision 5\n"
    assert json.loads(run("export", "-", "--json", *where).stderr)["omitted"] == 2


def test_reset_renames_the_vault_only_with_confirm(folder: Path) -> None:
    shape = said("reset", "--data-dir", str(folder))
    assert (shape["aside"], shape["done"], (folder / "vault").exists()) == (None, False, True)
    aside = said("reset", "--confirm", "--data-dir", str(folder))["aside"]
    assert not (folder / "vault").exists()
    assert (Path(aside) / DATA).exists()


def test_vault_in_use_and_missing_vault_are_refused(folder: Path, tmp_path: Path) -> None:
    """Exit codes 3, 3 and 0, and 1 of recover-quorum, all because the node ran."""
    vault = open_vault(folder / "vault")
    for command in (("verify",), ("reset", "--confirm"), ("reset",)):
        error = said(*command, "--data-dir", str(folder), exit_code=1)["error"]
        assert (error["code"], error["retry"]) == ("vault-unusable", True)
    assert vault.revision == 4
    vault.close()
    for command in ("inspect", "verify", "reset"):
        assert said(command, "--data-dir", str(tmp_path / "no"), exit_code=1)["error"]["code"] == "vault-foreign"
    assert not (tmp_path / "no").exists()


def test_export_replaces_a_file_only_with_overwrite(folder: Path) -> None:
    file = folder / "out"
    file.write_text("kept")
    error = said("export", str(file), "--data-dir", str(folder), exit_code=1)["error"]
    assert error["message"] == f"{file} exists already: give another name, or --overwrite"
    assert file.read_text() == "kept"
    assert said("export", str(file), "--overwrite", "--data-dir", str(folder))["keys"] == 3


def test_export_names_what_is_wrong_with_its_file(folder: Path) -> None:
    """It was "[Errno 2] No such file or directory: '/nodir/x.partial'"."""
    cases = {
        str(folder): f"{folder} is a folder: give a file",
        ".": ". is a folder: give a file",
        str(folder / "none" / "x"): f"there is no folder {folder / 'none'}: create it, or give another file",
        "/dev/null": "/dev/null is not a regular file: give another one",
    }
    for file, message in cases.items():
        shown = run("export", file, "--overwrite", "--data-dir", str(folder), exit_code=1).stderr
        assert shown == f"palisade: {message}\n"
    (folder / "x.partial").touch()
    shown = run("export", str(folder / "x"), "--data-dir", str(folder), exit_code=1).stderr
    assert "x.partial exists: wait for the export that writes it" in shown


def test_export_ends_quietly_if_the_reader_of_its_output_has_ended(folder: Path) -> None:
    """It was "[Errno 32] Broken pipe; give another file", exit code 1."""
    vault = open_vault(folder / "large" / "vault")
    vault.claim(VaultLineage("c1", 2, "n1"))
    follow(vault, full([(b"/%d" % number, b"v" * 1000) for number in range(1000)]))
    vault.close()
    command = [sys.executable, "-m", "palisade.cli", "vault", "export", "-", "--data-dir", str(folder / "large")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=CODE_ROOT)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 0


@pytest.mark.parametrize("command", ["inspect", "verify", "export", "reset"])
def test_data_folder_without_a_vault_is_refused_with_what_to_give(command: str, tmp_path: Path) -> None:
    """The text asked for the folder of the vault, which --data-dir does not take."""
    (tmp_path / "d1").mkdir()
    more = [str(tmp_path / "file")] if command == "export" else []
    for folder, text in (("nodir", "there is no folder {}: give"), ("d1", "there is no vault in the data folder {}: ")):
        data_dir = tmp_path / folder
        error = said(command, *more, "--data-dir", str(data_dir), exit_code=1)["error"]
        assert error["code"] == "vault-foreign"
        assert error["message"].startswith(text.format(data_dir))
        assert error["message"].endswith("(its --data-dir)")
    assert not (tmp_path / "nodir").exists()


def test_vault_that_was_put_aside_is_named(tmp_path: Path) -> None:
    """After recover-quorum, verify and export did not find a vault."""
    (tmp_path / "vault.aside-1").mkdir()
    message = said("verify", "--data-dir", str(tmp_path), exit_code=1)["error"]["message"]
    assert f"only what was put aside: {tmp_path / 'vault.aside-1'}" in message


@pytest.mark.parametrize("command", ["inspect", "verify", "export", "reset"])
def test_file_in_place_of_a_data_folder_is_wrong_usage(command: str, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    more = [str(tmp_path / "file")] if command == "export" else []
    error = said(command, *more, "--data-dir", str(tmp_path / "f"), exit_code=2)["error"]
    assert f"{tmp_path / 'f'} is a file; give the data folder of a node" in error["message"]
