"""Files that cannot be read are refused with a reason in words, without "[Errno 2]" and the like (issue 16)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.cli.target import LAYOUT_FILE, local_layout
from palisade.pipeline.cluster import credentials_of
from palisade.pipeline.errors import BadOption
from palisade.pipeline.options import ClusterAccess


def command(*arguments: str) -> Callable[[], str]:
    return lambda: CliRunner().invoke(main, arguments).stderr


def message_of(action: Callable[[], object]) -> str:
    with pytest.raises((click.UsageError, BadOption)) as refused:
        action()
    return str(refused.value)


def test_report_of_a_recovery_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "recovery.json").mkdir()
    shown = command("recovery", "--data-dir", str(tmp_path))()
    assert shown == f"palisade: the report in {tmp_path} cannot be read: is a directory\n"


def test_segments_to_publish_that_are_missing(tmp_path: Path) -> None:
    shown = command("segments", "publish", "flights", str(tmp_path / "none"))()
    assert f"{tmp_path}/none is not a readable JSON file: no such file or directory; see" in shown


def test_layout_of_the_local_cluster_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / LAYOUT_FILE).mkdir()
    shown = message_of(lambda: local_layout(tmp_path))
    assert shown.startswith(f"{tmp_path / LAYOUT_FILE} cannot be read: is a directory; give --endpoints")


def test_credentials_of_a_pipeline_job_that_are_missing(tmp_path: Path) -> None:
    access = ClusterAccess(("127.0.0.1:1",), "", "alice", str(tmp_path / "none"), 1.0)
    shown = message_of(lambda: credentials_of(access))
    assert shown == f"option passwordFile: cannot read {tmp_path}/none: no such file or directory"


def test_manual_pages_in_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """`palisade man /proc/x` ended with a traceback."""
    (tmp_path / "file").touch()
    shown = command("man", str(tmp_path / "file" / "man1"))()
    assert shown == f"palisade: {tmp_path}/file/man1 can't be written: Not a directory; give another folder\n"
    (tmp_path / "man2" / "palisade.1").mkdir(parents=True)
    shown = command("man", str(tmp_path / "man2"))()
    assert shown == f"palisade: {tmp_path}/man2/palisade.1 can't be written: Is a directory; give another folder\n"
