"""palisade restore of a cluster whose ports another process uses (issue 16)."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.metastore.memory_store import MemoryStore
from tests.support.cli_node import CliNode, cli_node
from tests.support.processes import free_port


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    async def snapshot() -> Any:
        disk = MemoryStore("copy")
        disk.replace_content(nodes[0].group.store._tables.content())  # type: ignore[attr-defined]
        return await disk.open_snapshot()

    nodes, file = list[CliNode](), tmp_path / "b.backup"
    with cli_node(open_snapshot=snapshot) as node:
        nodes.append(node)
        done = CliRunner().invoke(main, ["backup", str(file), "--endpoints", node.endpoint])
        assert done.exit_code == 0, done.output
    return file


def test_restore_onto_used_ports_is_done_and_notes_that_it_cannot_be_started_yet(backup: Path, tmp_path: Path) -> None:
    """The line was that of a refusal, "port ... is in use", and was printed with --json too."""
    with socket.create_server(("127.0.0.1", free_port())) as used:
        port = used.getsockname()[1]
        arguments = ["restore", str(backup), "--data-dir", str(tmp_path / "d"), "--base-port", str(port - 1)]
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, (tmp_path / "d").is_dir()) == (0, True), result.output
        line = re.fullmatch(
            rf"palisade: the cluster is restored, but can't be started yet: port {port} \(HTTP of n1\) is in use by "
            r"process \d+ \(.+\); stop that, or restore into another folder with another --base-port\n",
            result.stderr,
        )
        assert line is not None, result.stderr
        arguments[3] = str(tmp_path / "other")
        result = CliRunner().invoke(main, [*arguments, "--json"])
        assert (result.exit_code, result.stderr) == (0, "")
