"""The client of a cluster for programs that do not use asyncio: `Client` with blocking calls.

The requests of all threads are pipelined on one connection.
"""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

from palisade.client.client import Client
from palisade.client.client_closed import ClientClosed
from palisade.client.endpoints import EndpointsLike
from palisade.client.loop_thread import LoopThread
from palisade.client.recording_files import Recording
from palisade.client.sync_api import SyncApi
from palisade.wire.credentials import Credentials


class SyncClient(SyncApi):
    """Threads may share it, and any number of requests may be in flight. Each is retried safely until its deadline,
    across reconnections and changes of leader.

    It connects at its first call, or when its `with` is entered. Call `close`, or leave its `with`, after use. A client
    created before a fork belongs to the child if it was not used before; else calls in the child raise RuntimeError.

    The parameters are those of `Client`.
    """

    def __init__(
        self,
        endpoints: EndpointsLike,
        *,
        timeout_s: float = 5.0,
        client_id: str | None = None,
        exactly_once: bool = True,
        follow_leader: bool = True,
        credentials: Credentials | None = None,
        wait_for_nodes: bool = True,
        record: str | Path | Recording | None = None,
    ) -> None:
        self._api: Client = Client(
            endpoints,
            timeout_s=timeout_s,
            client_id=client_id,
            exactly_once=exactly_once,
            follow_leader=follow_leader,
            credentials=credentials,
            wait_for_nodes=wait_for_nodes,
            record=record,
        )
        self._opening = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False

    def open(self) -> None:
        """Start to connect. The first call does this as well."""
        self._running()

    def close(self) -> None:
        """End waiting calls with Unavailable or OutcomeUnknown, and the connection. May be called again."""
        with self._opening:
            self._closed = True
            thread = self._thread
        if thread is not None:
            thread.stop()

    def __enter__(self) -> SyncClient:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> LoopThread:
        """The thread of this client; the first call starts it."""
        return self._thread or self._started()

    def _started(self) -> LoopThread:
        with self._opening:
            if self._closed:
                raise ClientClosed("the client is closed; create a new one")
            if self._thread is None:
                thread = LoopThread(self._api.__aenter__, self._api.close)
                weakref.finalize(self, thread.stop, 0.0).atexit = False
                self._thread = thread
            return self._thread


def connect(
    endpoints: EndpointsLike,
    *,
    timeout_s: float = 5.0,
    client_id: str | None = None,
    exactly_once: bool = True,
    follow_leader: bool = True,
    credentials: Credentials | None = None,
    record: str | Path | Recording | None = None,
) -> SyncClient:
    """A `SyncClient` that has reached a node: `connect("127.0.0.1:7601")`, or several addresses in any order.

    It blocks, like `connect` of sqlite3 or psycopg; asyncio programs use `async with Client(...)`. Raises ValueError
    for an endpoint that is not an address, Unavailable if no node responds within `timeout_s`, Unauthenticated if the
    credentials are refused.
    """
    client = SyncClient(
        endpoints,
        timeout_s=timeout_s,
        client_id=client_id,
        exactly_once=exactly_once,
        follow_leader=follow_leader,
        credentials=credentials,
        record=record,
    )
    try:
        client.ping()
    except BaseException:
        client.close()
        raise
    return client
