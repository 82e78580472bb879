"""Appends rows to realtime segments from blocking programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palisade.client.loop_thread import LoopThread
from palisade.client.realtime import RealtimeWriter


class SyncRealtimeWriter:
    """`with client.realtime(...) as writer: writer.append([[1], [2]])`. The methods are those of `RealtimeWriter`."""

    def __init__(self, writer: RealtimeWriter, thread: LoopThread) -> None:
        self._writer, self._thread = writer, thread

    def __enter__(self) -> SyncRealtimeWriter:
        self._thread.run(self._writer.__aenter__())
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        self._thread.run(self._writer.__aexit__(kind, error, where))

    @property
    def segment(self) -> str:
        return self._writer.segment

    @property
    def rows(self) -> int:
        return self._writer.rows

    @property
    def node(self) -> str:
        return self._writer.node

    def append(self, rows: Sequence[Sequence[Any] | Mapping[str, Any]]) -> int:
        return self._thread.run(self._writer.append(rows))

    def close(self) -> int:
        return self._thread.run(self._writer.close())
