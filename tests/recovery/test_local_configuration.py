"""The vault keeps the node's own configuration beside the projection of the cluster's state (R1; seed 001)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palisade.base.clock import SystemClock
from palisade.node.config import NodeConfig
from palisade.node.config_sources import load_node_config
from palisade.node.local_configuration import local_configuration
from palisade.node.options import GivenValue, node_config
from palisade.node.standalone import NoNetwork
from palisade.recovery.catchup import Difference
from palisade.recovery.lifecycle import Lifecycle
from palisade.recovery.vault_component import OnVault, RecoveryClock, VaultComponent
from palisade.recovery.vault_configuration import changes
from palisade.recovery.vault_storage import VaultFolder
from palisade.vault.errors import VaultUnusable
from palisade.vault.opening import open_vault
from palisade.vault.position import VaultLineage

ADDRESSES = {"http": "127.0.0.1:7401", "peer": "[::1]:7501", "stream": "127.0.0.1:7601"}
OTHERS = {
    "initial-cluster": "n1=127.0.0.1:7501:7401:7601,n2=127.0.0.1:7502:7402:7602",
    "seeds": "127.0.0.1:7701,127.0.0.1:7702",
    "join-token": "secret-token",
    "catch-up-difference": "7",
    "quota-bytes": "1GiB",
    "request-deadline-s": "2.5",
    "insecure-listen": "true",
}
GIVEN = {"id": "n1", "cluster": "c1", "data-dir": "d/n1", **ADDRESSES, **OTHERS}


def config(**other: str) -> NodeConfig:
    return load_node_config(GIVEN | {name.replace("_", "-"): text for name, text in other.items()}, environ={})


@pytest.mark.parametrize("other", [{}, {"follow": "true", "join": "127.0.0.1:7401", "initial_cluster": ""}])
def test_configuration_round_trips(other: dict[str, str]) -> None:
    whole = config(**other)
    found = local_configuration(whole)
    again = node_config({name: GivenValue(text, "the vault") for name, text in found.items()})
    assert again == replace(whole, join_token=None)


def test_configuration_contains_no_secret() -> None:
    assert "secret-token" not in str(local_configuration(config()))


def test_only_changed_configuration_is_written() -> None:
    first = local_configuration(config())
    kept = {name: text.encode() for name, text in first.items()}
    assert changes({}, first) == kept
    assert changes(kept, first) == {}
    now = local_configuration(replace(config(catch_up_difference="8"), seeds=()))
    assert changes(kept, now) == {"catch-up-difference": b"8", "seeds": None}


def keeper(path: Path, node: str, local: dict[str, str]) -> Any:
    clock = RecoveryClock(SystemClock(), gentle=False)
    return VaultComponent(
        VaultFolder(path), node, NoNetwork(), OnVault(Lifecycle([])), clock, Difference(0), local=local
    )


async def test_starting_node_stores_its_configuration_in_the_vault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for local in ({"http": "h:1", "rack": "r7"}, {"http": "h:2"}, {"http": "h:2"}):
        started = keeper(tmp_path, "n1", local)
        await started.start()
        await started.stop()
        vault = open_vault(tmp_path)
        assert vault.config() == {name: text.encode() for name, text in local.items()}
        vault.close()
    said = [record.getMessage() for record in caplog.records if "configuration" in record.getMessage()]
    assert said == ["configuration differs from that of the last start: node=n1 options=http,rack"]


async def test_failed_start_releases_the_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise VaultUnusable("No space left on device: make room")

    started = keeper(tmp_path, "n1", {"http": "h:1"})
    with monkeypatch.context() as patched:
        patched.setattr("palisade.vault.vault.Vault.set_config", full)
        with pytest.raises(VaultUnusable, match="make room"):
            await started.start()
    assert started.revision == 0
    open_vault(tmp_path).close()


async def test_vault_of_another_node_keeps_its_configuration(tmp_path: Path) -> None:
    """For example, two vaults were swapped: a vault that will be refused is not changed."""
    vault = open_vault(tmp_path)
    vault.claim(VaultLineage("c1", 1, "n2"))
    vault.set_config({"http": b"of n2"})
    vault.close()
    started = keeper(tmp_path, "n1", {"http": "of n1"})
    await started.start()
    await started.stop()
    vault = open_vault(tmp_path)
    assert vault.config() == {"http": b"of n2"}
    vault.close()
