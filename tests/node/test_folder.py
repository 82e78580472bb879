"""Unwritable and foreign folders are refused, and their content is not changed (issue 2, "Bad input")."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palisade.node.data_dir import claim_data_dir
from palisade.node.data_dir_marker import FolderError, Marker


def claim(path: Path, cluster: str = "c", node: str = "n1") -> None:
    claim_data_dir(path, cluster=cluster, node=node)


def test_new_folder_is_created_with_its_marker(tmp_path: Path) -> None:
    claim(tmp_path / "a" / "b")
    assert Marker(tmp_path / "a" / "b", "node.json").read() == {"format": 1, "cluster": "c", "node": "n1"}
    claim(tmp_path / "a" / "b")


def test_folder_with_other_content_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(FolderError, match=r"has no node\.json.*found: thesis\.tex.*empty or new folder"):
        claim(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="can't be used as a data folder"):
        claim(tmp_path / "file" / "data")


def test_full_disk_is_refused_and_leaves_no_partial_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("palisade.base.durable_files.os.fsync", full)
        with pytest.raises(FolderError, match="can't be written: no space left"):
            claim(tmp_path)
    claim(tmp_path)


@pytest.mark.parametrize(("owner", "says"), [({"cluster": "x"}, "--cluster"), ({"node": "n2"}, "--id")])
def test_folder_of_another_cluster_or_node_is_refused(tmp_path: Path, owner: dict[str, str], says: str) -> None:
    claim(tmp_path)
    with pytest.raises(FolderError, match=says):
        claim(tmp_path, **owner)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "can't be read"),
        ("[]", "is not one of Palisade's files"),
        (json.dumps({"format": 99}), "format 99"),
    ],
)
def test_unreadable_marker_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "node.json").write_text(text)
    with pytest.raises(FolderError, match=says):
        claim(tmp_path)


def test_crash_during_the_first_marker_does_not_make_the_folder_foreign(tmp_path: Path) -> None:
    (tmp_path / "node.new").write_text('{"for')
    claim(tmp_path)
