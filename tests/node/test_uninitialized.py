"""A node that waits for `palisade init`, as commands see it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.node.config_sources import load_node_config
from palisade.node.uninitialized import UninitializedNode
from tests.support.processes import free_port


@pytest.mark.parametrize("command", ["status", "recovery", "fencing", "get /a", "range /a --prefix"])
async def test_command_at_a_waiting_node_names_init(command: str, tmp_path: Path) -> None:
    """It was "unknown path /v1/status; /openapi.json lists the paths of this node", which it does not serve either;
    later "unknown path /v1/status; n1 waits ...", with exit code 1, so that a script did not repeat it."""
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("http", "peer", "stream", "swim")}
    config = load_node_config({"id": "n1", "cluster": "c1", "data-dir": str(tmp_path), **ports}, environ={})
    node = UninitializedNode(config)
    try:
        await node.start()
        words = [*command.split(), "--json", "--at", str(config.http)]
        done = await asyncio.to_thread(CliRunner().invoke, main, words)
    finally:
        await node.stop()
    assert done.exit_code == 3
    failed = {"code": "unavailable", "message": "n1 waits to be initialized: see 'palisade init --help'", "retry": True}
    assert json.loads(done.stderr) == {"error": failed}


@pytest.mark.parametrize(
    "command", ["status", "put /a 1", "topology", "member list", "catalog drop-database nope", "backup FILE"]
)
async def test_command_without_at_names_init_at_once(command: str, tmp_path: Path) -> None:
    """The stream port of a waiting node did not listen: "no node answers ... start one with 'palisade up'"."""
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("http", "peer", "stream", "swim")}
    config = load_node_config({"id": "n1", "cluster": "c1", "data-dir": str(tmp_path), **ports}, environ={})
    node = UninitializedNode(config)
    endpoints = f"{config.stream},127.0.0.1:{free_port()}"
    try:
        await node.start()
        words = [*command.replace("FILE", str(tmp_path / "b")).split(), "--endpoints", endpoints, "--timeout", "3600"]
        done = await asyncio.to_thread(CliRunner().invoke, main, words)
    finally:
        await node.stop()
    assert done.exit_code == 3
    reasons = done.stdout.replace("\tyes\t", ": ") if command == "status" else done.stderr
    assert f"{config.stream}: the node waits to be initialized: see 'palisade init --help'" in reasons
    assert "palisade up" not in done.stderr


async def test_stream_port_of_a_waiting_node_names_the_right_port_to_another_protocol(tmp_path: Path) -> None:
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("http", "peer", "stream", "swim")}
    config = load_node_config({"id": "n1", "cluster": "c1", "data-dir": str(tmp_path), **ports}, environ={})
    node = UninitializedNode(config)
    try:
        await node.start()
        done = await asyncio.to_thread(CliRunner().invoke, main, ["status", "--at", str(config.stream)])
    finally:
        await node.stop()
    assert f"use the HTTP API port {config.http}" in done.stderr
