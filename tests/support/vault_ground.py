"""A node in a thread with a vault in a folder, for readers of that vault."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from palisade.client.sync_client import SyncClient
from palisade.pipeline.options import ReadOptions, read_options
from palisade.vault.fence_file import clock_ns
from palisade.vault.opening import open_vault
from palisade.vault.position import VaultLineage
from palisade.vault.vault import Vault
from tests.support.threaded_node import ThreadedNode
from tests.support.vault_feed import follow, some_key

SECOND_NS = 1_000_000_000


class VaultGround:
    """`serve` alone renews the lease of the vault, and `follow` alone applies changes to it."""

    def __init__(self, node: ThreadedNode, folder: Path, cluster_id: str = "") -> None:
        self.node, self.folder = node, folder
        self.vault: Vault = open_vault(folder, map_bytes=1 << 26)
        lineage = node.group.store.lineage
        self.vault.claim(VaultLineage(cluster_id or lineage.cluster_id, lineage.generation, "n1"))
        self.random = random.Random(7)

    def options(self, **more: str) -> ReadOptions:
        return read_options({"endpoints": self.node.address, "vaults": f"/nowhere,{self.folder}", **more})

    def follow(self) -> None:
        driver: Any = SimpleNamespace(store=self.node.group.store)
        self.node.do(lambda: follow(self.vault, driver))

    def serve(self, seconds: float = 60) -> None:
        assert self.vault.page is not None
        if seconds > 0:
            self.vault.page.serve(clock_ns() + int(seconds * SECOND_NS), 1)
        else:
            self.vault.page.refuse()

    def write(self, client: SyncClient, count: int) -> None:
        """Puts, deletes and re-creations."""
        for number in range(count):
            key = some_key(self.random, 120)
            if self.random.random() < 0.4:
                client.delete(key)
            else:
                client.put(key, b"%d" % number * self.random.randrange(1, 30))
