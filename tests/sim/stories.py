"""Histories for the tests of checkers, built step by step: commits, requests, results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palisade.metastore.requests import Put, Range, WatchRequest
from palisade.metastore.results import Event, KeyValue, PutResult, RangeResult, RevisionEvents
from tests.sim.history import History
from tests.sim.seen import Ok, Path

A, B, E = b"s/a", b"s/b", b"e/a"
WATCHED = WatchRequest(b"s/", b"s0", 2)


Broken = Callable[["Story"], None]


class Story:
    """Writes that are committed in the order of the calls, and results."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.history = History(lambda: self.now_s)
        self.state: dict[bytes, KeyValue] = {}
        self.revision = 1

    def commit(self, *changes: tuple[bytes, bytes | None], lease: int = 0) -> RevisionEvents:
        """In one revision; a value of None deletes."""
        self.revision += 1
        events = tuple(self._event(key, value, lease) for key, value in changes)
        committed = RevisionEvents(self.revision, events)
        self.history.committed(committed)
        return committed

    def _event(self, key: bytes, value: bytes | None, lease: int) -> Event:
        old = self.state.pop(key, None)
        if value is None:
            return Event(True, KeyValue(key, b"", 0, self.revision, 0, 0), None)
        created, version = (old.create_revision, old.version + 1) if old else (self.revision, 1)
        self.state[key] = KeyValue(key, value, created, self.revision, version, lease)
        return Event(False, self.state[key], None)

    def put(self, key: bytes, value: bytes, **more: Any) -> RevisionEvents:
        number = self.history.begin("w", "n1", Path.LEADER, Put(key, value), **more)
        committed = self.commit((key, value))
        self.history.end(number, Ok(PutResult(committed.revision)))
        return committed

    def said(self, request: Any, outcome: Any, **more: Any) -> None:
        """A request and its response, without an event in between."""
        self.history.end(self.history.begin("w", "n1", Path.LEADER, request, **more), outcome)

    def read(self, *kvs: KeyValue, key: bytes = A, path: Path = Path.MEMBER, revision: int = 0, at: int = 0) -> None:
        request = Range(key, b"" if key[-1:] != b"/" else key[:-1] + b"0", revision=at, serializable=path is Path.LOCAL)
        number = self.history.begin("r", "n2", path, request)
        self.history.end(number, Ok(RangeResult(revision, kvs, False, len(kvs))))

    def watch(self, *batches: RevisionEvents, request: WatchRequest = WATCHED, resumes: int = 0, began: int = 1) -> int:
        number = self.history.watch("v", "n3", request, resumes)
        self.history.watch_began(number, began)
        for batch in batches:
            self.history.delivered(number, (batch,))
        return number

    def final(self, *kvs: KeyValue) -> None:
        self.history.final(
            "n1", RangeResult(self.revision, kvs or tuple(self.state[k] for k in sorted(self.state)), False, 0)
        )
