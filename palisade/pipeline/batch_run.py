"""Executes the steps of `batch_steps.py` with a client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from typing import Any

from palisade.client.sync_client import SyncClient
from palisade.metastore.errors import Compacted, InvalidRequest, TooManyPins
from palisade.metastore.requests import Range, Txn
from palisade.pipeline.batch_steps import HoldRevision, ReleaseRevision, Request, Steps, Together

COPIES_AHEAD = 4
"""Maximum number of chunks that a node applies without a pause for heartbeats."""
HOLD_MS = 600_000
OPTIONS = tuple(each.name for each in fields(Range) if each.name not in ("key", "range_end"))


def run_steps(client: SyncClient, steps: Steps) -> Any:
    """Runs the generator and returns its result. Raises its errors, and those of the client."""
    with ThreadPoolExecutor(COPIES_AHEAD) as pool:
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = _execute(client, request, pool)


def _execute(client: SyncClient, request: Request, pool: ThreadPoolExecutor) -> Any:
    match request:
        case Range():
            options: Any = {name: getattr(request, name) for name in OPTIONS if name != "exact_count"}
            return client.range(request.key, request.range_end, **options)
        case Txn():
            return client.txn(request.compare, request.success, request.failure)
        case Together(requests):
            return list(pool.map(client.copy_chunk, requests))
        case HoldRevision(name, span, revision):
            with suppress(Compacted, InvalidRequest, TooManyPins):  # without it, old deletes may be unknown
                client.pin(*span, f"batch-{name}", revision, HOLD_MS)
        case ReleaseRevision(name, span):
            client.unpin(*span, f"batch-{name}")
    return None
