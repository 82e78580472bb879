"""Input that is endless is refused; whatever ends, or is typed, is read (issue 16)."""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest

from palisade.base.input_file import IS_A_DEVICE, ending_input
from palisade.base.network_reason import reason_of


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/urandom"])
def test_device_without_an_end_is_refused(device: str) -> None:
    with pytest.raises(OSError, match=IS_A_DEVICE) as refused:
        ending_input(device)
    assert reason_of(refused.value) == "it is a device; give a regular file or a pipe"


def test_link_to_a_device_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "rows"
    link.symlink_to("/dev/zero")
    with pytest.raises(OSError, match=IS_A_DEVICE):
        ending_input(link)


def test_files_pipes_terminals_and_the_empty_device_are_read(tmp_path: Path) -> None:
    file, named = tmp_path / "file", tmp_path / "named"
    file.write_bytes(b"a")
    os.mkfifo(named)
    reading, writing = os.pipe()
    leader, terminal = pty.openpty()
    try:
        for path in (file, named, f"/dev/fd/{reading}", os.ttyname(terminal), f"/dev/fd/{terminal}", os.devnull):
            assert ending_input(path) == Path(path)
    finally:
        for each in (reading, writing, leader, terminal):
            os.close(each)


def test_other_reasons_are_those_of_reading(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ending_input(tmp_path / "none")
