"""Why the cluster cannot answer a job of the pipeline: one request before Spark starts, then a client beside the job.

The clients of a job are in its driver, its workers and the processes of its data sources, which cannot print on the
terminal of the command. Therefore the command has a client of its own, connected to the same nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from palisade.cli.node_waits import NodeWaits, followed

if TYPE_CHECKING:
    from palisade.cli.session import CliSession
    from palisade.client import Client
    from palisade.pipeline.options import ClusterAccess

LOOK_S = 0.3


def ask_cluster(session: CliSession, access: ClusterAccess) -> None:
    """Ends the process with the reason if the cluster does not answer within the deadline.

    A digest needs no right, and is a linearizable read."""
    from palisade.pipeline.cluster import credentials_of

    session.with_credentials(credentials_of(access)).call(lambda client: client.digest())


@contextlib.contextmanager
def trouble_beside(access: ClusterAccess) -> Iterator[Callable[[], str | None]]:
    """Yields a function that any thread may call: why no answer can arrive at the moment; None if it can."""
    from palisade.client.loop_thread import LoopThread
    from palisade.pipeline.cluster import client_of

    client, looks = client_of(access), Looks()
    thread = LoopThread(client.__aenter__, client.close)
    following = thread.begin(looks.follow(client))
    try:
        yield lambda: looks.text
    finally:
        following.cancel()
        thread.stop()


class Looks:
    """`text`: the reason at the latest look."""

    def __init__(self) -> None:
        self.text: str | None = None

    async def follow(self, client: Client) -> None:
        """Until it is cancelled. The first look comes after the client has had time to connect."""
        waits = NodeWaits()
        async with followed(client, waits):
            while True:
                await asyncio.sleep(LOOK_S)
                self.text = waits.known(client)
