"""Tasks of Spark, in processes of their own, read the vault of a node on their machine (issue 18)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from palisade.client.sync_client import SyncClient
from tests.support.threaded_node import ThreadedNode
from tests.support.vault_ground import VaultGround

pytestmark = pytest.mark.e2e


def test_tasks_read_the_vault_at_one_revision_and_fail_without_it_if_that_is_wanted(
    spark: Any, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    ground = VaultGround(threaded, tmp_path / "vault")
    with closing(ground.vault):
        ground.write(blocking, 200)
        ground.follow()
        ground.serve()
        options = {"endpoints": threaded.address, "numPartitions": "3"}
        local = {"vaults": str(ground.folder), "vaultOnly": "true"}
        frame = spark.read.format("palisade").options(**options, **local).load()
        wanted = blocking.range("\0", "\0").kvs
        ground.write(blocking, 100)
        ground.follow()
        rows = frame.orderBy("revision").collect()
        assert [(row.key, bytes(row.value)) for row in rows] == [
            (kv.key.decode(), kv.value) for kv in sorted(wanted, key=lambda kv: kv.mod_revision)
        ]
        assert frame.count() == len(wanted)
        ground.serve(0)
        with pytest.raises(Exception, match=r"VaultNotRead.*the node is fenced"):
            frame.count()
