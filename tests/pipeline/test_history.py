"""The job `history` in Spark: the archive answers as the store did, after compaction too (issue 18, P4)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from palisade import pipeline
from palisade.client.sync_client import SyncClient
from palisade.metastore.watermarks import PREFIX
from palisade.pipeline import history
from palisade.pipeline.archive_manifest import ArchiveRefused
from tests.support.threaded_node import ThreadedNode

pytestmark = pytest.mark.e2e

State = dict[bytes, tuple[bytes, int, int, int]]


def state_in(frame: Any) -> State:
    found = {
        bytes(row.key): (bytes(row.value), row.revision, row.create_revision, row.version) for row in frame.collect()
    }
    return {key: value for key, value in found.items() if not key.startswith(PREFIX)}


def change(client: SyncClient, random: Random, states: dict[int, State]) -> None:
    for _ in range(30):
        key = f"k{random.randrange(8)}"
        if random.random() < 0.3:
            client.delete(key)
        else:
            client.put(key, f"{random.random()}")
        result = client.range("k", prefix=True)
        states[result.revision] = {
            kv.key: (kv.value, kv.mod_revision, kv.create_revision, kv.version) for kv in result.kvs
        }


def test_archive_answers_as_the_store_did(spark: Any, threaded: ThreadedNode, tmp_path: Path) -> None:
    folder, states, random = str(tmp_path / "archive"), dict[int, State](), Random(7)

    def archived(**more: Any) -> dict[str, Any]:
        return pipeline.run("history", threaded.address, spark=spark, to=folder, **more).fields

    with SyncClient(threaded.address, follow_leader=False) as client:
        change(client, random, states)
        base = min(states) + 5
        client.compact(base)
        assert archived()["base"] == base
        change(client, random, states)
        assert archived(batch_revisions=20, merge_rows=0)["merged"] == 0
        done = archived()
        assert done["merged"] > 1
        again = archived()
        assert (again["changes"], again["last"]) == (0, done["last"]), "the watermark alone is no reason for a step"
        client.compact(done["last"])
        change(client, random, states)

        known = sorted(revision for revision in states if revision >= base)
        for revision in [*random.sample(known, 6), known[0], known[-1]]:
            found = history.at(spark, folder, revision, threaded.address)
            assert state_in(found) == states[revision], revision
        assert history.changes(spark, folder).count() == done["last"] - base, "each revision is one change"
        assert history.versions(spark, folder).where("valid_to_revision <= valid_from_revision").count() == 0
        with pytest.raises(ArchiveRefused, match=f"has the revisions {base} to"):
            history.at(spark, folder, base - 1, threaded.address)
