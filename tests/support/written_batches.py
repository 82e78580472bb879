"""Batches of the Spark sink without Spark: tasks that collect rows, and a driver that publishes them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from palisade.client.sync_client import SyncClient
from palisade.metastore.limits import Limits
from palisade.metastore.lineage import Lineage
from palisade.pipeline.options import WriteTarget
from palisade.pipeline.publishing import Publication
from palisade.pipeline.query_record import BatchName
from palisade.pipeline.task_rows import StageName, TaskRows, collecting

HERE = Lineage("c", 1)


def stage_of(target: WriteTarget, stage: str) -> StageName:
    return StageName(stage, f"{target.rejects}{stage}/".encode())


def task(
    client: SyncClient, target: WriteTarget, rows: Iterable[Any], *, attempt: str = "00000-0", stage: str = "t"
) -> TaskRows:
    """What a task reports that has written these rows: (key, value), or with an op."""
    with collecting(target, Limits(), lambda: nullcontext(client), stage_of(target, stage), attempt) as collector:
        for key, value, *op in rows:
            collector.add({"key": key, "value": value, **({"op": op[0]} if op else {})})
        return collector.finish()


def commit(
    client: Any,
    target: WriteTarget,
    parts: list[TaskRows],
    *,
    query: tuple[str, int] | None = None,
    stage: str = "t",
    here: Lineage = HERE,
) -> int | None:
    name = None if query is None else BatchName(*query, here)
    return Publication(client, target, Limits(), stage_of(target, stage), name).publish(parts)


def publish(
    client: Any, target: WriteTarget, *tasks: Iterable[Any], query: tuple[str, int] | None = None, stage: str = "t"
) -> int | None:
    """One task for each sequence of rows."""
    parts = [task(client, target, rows, attempt=f"{number:05d}-0", stage=stage) for number, rows in enumerate(tasks)]
    return commit(client, target, parts, query=query, stage=stage)


def contents(client: SyncClient, prefix: str = "p/") -> dict[bytes, bytes]:
    return {kv.key: kv.value for kv in client.range(prefix, prefix=True).kvs}
