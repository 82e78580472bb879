"""Answers requests of nodes that keep a vault, at a member of the Raft group (`recovery/feed_messages.py`).

A refusal is [kind, text, MM or 0] with status 410 (compacted), 409 (pin refused), 400 or 503.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from palisade.recovery import feed_messages as wire
from palisade.recovery.errors import PinRefused, SourceCompacted, SourceUnavailable
from palisade.service.key_values import KeyValues
from palisade.service.local_source import local_source

Answer = Callable[[bytes], Awaitable[Any]]


class FeedAnswers:
    """Stateless between requests."""

    def __init__(self, service: KeyValues) -> None:
        self._service = service
        self._source = local_source(service, "")
        self._answers: dict[str, Answer] = {
            "state": self._state,
            "changes": self._changes,
            "pin": self._pin,
            "unpin": self._unpin,
            "sums": self._sums,
            "rows": self._rows,
            "spans": self._spans,
            "fingerprints": self._fingerprints,
        }

    def knows(self, question: str) -> bool:
        return question in self._answers

    async def answer(self, question: str, body: bytes) -> tuple[int, bytes]:
        """HTTP status and body."""
        try:
            return 200, wire.pack(await self._answers[question](body))
        except SourceCompacted as error:
            return 410, wire.pack(["compacted", str(error), error.minimal_revision])
        except PinRefused as error:
            return 409, wire.pack(["pin-refused", str(error), 0])
        except SourceUnavailable as error:
            return 503, wire.pack(["unavailable", str(error), 0])
        except wire.BadFeed as error:
            return 400, wire.pack(["bad-request", str(error), 0])

    async def _state(self, body: bytes) -> Any:
        (chain_at,) = wire.arguments(body, wire.number)
        return wire.from_state(await self._source.state(chain_at))

    def _asked(self, body: bytes, *reads: wire.Read) -> list[Any]:
        """The revision in the request. Raises BadFeed; SourceCompacted for a revision of another history."""
        *asked, history = wire.arguments(body, *reads, wire.or_none(wire.history))
        store = self._service.store
        own = store.lineage.cluster_id, store.lineage.generation
        if history is not None and history != own:
            raise SourceCompacted(
                f"this is generation {own[1]} of cluster {own[0]}, not generation {history[1]} of {history[0]}: a "
                "backup was restored, or a new cluster forced",
                store.minimal_revision,
            )
        return asked

    async def _changes(self, body: bytes) -> Any:
        first, last = self._asked(body, wire.number, wire.number)
        return wire.from_changes(await self._source.changes(first, last))

    async def _pin(self, body: bytes) -> Any:
        node, revision, life_ms = wire.arguments(body, wire.name, wire.number, wire.number)
        return int(await local_source(self._service, node).pin(revision, life_ms / 1000) * 1000)

    async def _unpin(self, body: bytes) -> Any:
        (node,) = wire.arguments(body, wire.name)
        await local_source(self._service, node).unpin()

    async def _sums(self, body: bytes) -> Any:
        (revision,) = self._asked(body, wire.number)
        return wire.from_sums(await self._source.sums(revision))

    async def _rows(self, body: bytes) -> Any:
        kinds = wire.number, wire.bitmap, wire.number, wire.key, wire.or_none(wire.key)
        revision, buckets, newer_than, start, end = self._asked(body, *kinds)
        return wire.from_chunk(await self._source.rows(revision, buckets, newer_than, start, end))

    async def _spans(self, body: bytes) -> Any:
        revision, start = self._asked(body, wire.number, wire.key)
        return wire.from_chunk(await self._source.spans(revision, start))

    async def _fingerprints(self, body: bytes) -> Any:
        kinds = wire.number, wire.bitmap, wire.key, wire.or_none(wire.key)
        revision, buckets, start, end = self._asked(body, *kinds)
        return wire.from_chunk(await self._source.fingerprints(revision, buckets, start, end))
