"""A node that was stopped before it was part of a cluster leaves a folder that is not bound to a name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from palisade.node.config_sources import load_node_config
from palisade.node.data_dir import claim_data_dir, keep_participant
from palisade.node.uninitialized import UninitializedNode, config_of
from palisade.topology.initialization import InitPlan, InitState, Participant
from tests.support.processes import free_port

PLAN = InitPlan("c1", ("n1=127.0.0.1:1:2:3", "n2=127.0.0.1:4:5:6"))


def hold_a_plan(folder: Path) -> None:
    keep_participant(folder, Participant(InitState.PREPARED, PLAN))


def add_a_vault(folder: Path) -> None:
    (folder / "vault").mkdir()


@pytest.mark.parametrize(
    ("change", "freed"), [(lambda _: None, True), (hold_a_plan, False), (add_a_vault, False)], ids=["", "plan", "vault"]
)
async def test_stopped_node_without_a_plan_frees_its_folder(
    tmp_path: Path, change: Callable[[Path], None], freed: bool
) -> None:
    """A wrong --cluster could not be corrected with the same folder."""
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("http", "peer", "stream", "swim")}
    folder = tmp_path / "data"
    config = load_node_config({"id": "n1", "cluster": "c1", "data-dir": str(folder), **ports}, environ={})
    assert config_of(config) is None
    change(folder)
    node = UninitializedNode(config)
    await node.start()
    await node.stop()
    assert folder.exists() is not freed
    if freed:
        claim_data_dir(folder, cluster="right", node="n1")
