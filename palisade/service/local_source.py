"""The replica of this process as a source of changes: for its own vault, and for other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.requests import FROM_KEY, Command, WatchRequest
from palisade.raftgroup.errors import RaftError
from palisade.recovery.errors import SourceUnavailable
from palisade.recovery.store_source import StoreSource
from palisade.service.key_values import KeyValues

NEWS_S = 1.0
"""How long a request for changes waits for one."""


def local_source(service: KeyValues, node: str) -> StoreSource:
    """For `node`, in whose name MM is pinned. Raises SourceUnavailable if the group cannot serve the request."""

    async def barrier() -> None:
        with _unavailable():
            await service.barrier()

    async def propose(command: Command) -> Any:
        with _unavailable():
            applied = await service.group.propose(encode_command(command), timeout_s=service.deadline_s)
        return decode_result(applied.result)

    async def others() -> None:
        await asyncio.sleep(0)

    async def news(after: int) -> None:
        with _unavailable():
            watching = service.watch(WatchRequest(b"\0", FROM_KEY, after + 1), progress_s=NEWS_S)
        try:
            await watching.next()
        finally:
            watching.close()

    return StoreSource(node, service.store, barrier=barrier, propose=propose, others=others, news=news)


@contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except RaftError as error:
        raise SourceUnavailable(str(error)) from error
