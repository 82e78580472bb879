"""Commands keep their deadline where nodes accept connections and answer nothing, as frozen ones do (issue 16)."""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from palisade.cli.session import CliSession
from palisade.node.backup_file import BackupFile
from palisade.raftgroup.errors import OutcomeUnknown

backup_module: Any = importlib.import_module("palisade.cli.backup")
catalog_module: Any = importlib.import_module("palisade.cli.catalog")
session_module: Any = importlib.import_module("palisade.cli.session")


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of a port that accepts everything and answers nothing."""
    server = await asyncio.start_server(lambda reader, writer: asyncio.sleep(3600), "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_backup_keeps_its_deadline_and_leaves_no_partial_file(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def urls_of(_: Any) -> list[str]:
        return [f"http://{silent}", f"http://{silent}", f"http://{silent}"]

    monkeypatch.setattr(backup_module, "urls_of", urls_of)
    monkeypatch.setattr(session_module, "NOTICE_S", 0.1)
    session = CliSession([silent], 0.5, as_json=False)
    target = BackupFile(tmp_path / "backup", overwrite=False)
    began = time.monotonic()
    with pytest.raises(backup_module.BrokenOff, match=r"no backup began within 0\.5 s") as refused:
        await backup_module.take(session, target, False)
    target.discard()
    assert time.monotonic() - began < 0.5 * 3
    assert "not asked, the deadline of 0.5 s was over" in str(refused.value)
    assert sorted(os.listdir(tmp_path)) == []
    assert f"palisade: waiting: no backup yet from http://{silent}" in capsys.readouterr().err


def test_catalog_operation_that_no_node_begins_ends_at_the_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    """Not after `--wait`: that is for operations that were begun."""

    async def never(_client: Any, _s: float) -> Any:
        await asyncio.sleep(3600)

    class Session:
        deadline_s = 0.3

        def call(self, action: Any) -> Any:
            return asyncio.run(action(None))

    began = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="--procedure p1 is safe to repeat"):
        catalog_module.follow(Session(), "p1", 30.0, never)
    assert time.monotonic() - began < 3


async def test_command_shows_after_a_while_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session_module, "NOTICE_S", 0.01)
    async with session_module.waiting(lambda: "n1 does not\nanswer"):
        await asyncio.sleep(0.2)
    assert capsys.readouterr().err == "palisade: waiting: n1 does not answer\n"
