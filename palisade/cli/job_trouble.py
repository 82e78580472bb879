"""Why the cluster cannot answer a pipeline job: checked once before Spark starts, then polled during the job.

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

POLL_S = 0.3


def exit_if_no_answer(session: CliSession, access: ClusterAccess) -> None:
    """Returns once the cluster has answered. If it does not within the deadline, ends the process with the reason.

    The request is a digest: linearizable, and no permission is required."""
    from palisade.pipeline.cluster import credentials_of

    session.with_credentials(credentials_of(access)).call(lambda client: client.digest())


@contextlib.contextmanager
def trouble_beside(access: ClusterAccess) -> Iterator[Callable[[], str | None]]:
    """Yields a thread-safe function that returns why the cluster cannot answer now; None if it can."""
    from palisade.client.loop_thread import LoopThread
    from palisade.pipeline.cluster import client_of

    client, poll = client_of(access), TroublePoll()
    thread = LoopThread(client.__aenter__, client.close)
    following = thread.begin(poll.follow(client))
    try:
        yield lambda: poll.text
    finally:
        following.cancel()
        thread.stop()


class TroublePoll:
    """Polls a client for the reason why it gets no answers. `text`: the reason at the last poll; None if there is
    none."""

    def __init__(self) -> None:
        self.text: str | None = None

    async def follow(self, client: Client) -> None:
        """Polls until cancelled. The first poll is delayed by `POLL_S`, in which a client normally connects."""
        waits = NodeWaits()
        async with followed(client, waits):
            while True:
                await asyncio.sleep(POLL_S)
                self.text = waits.known(client)
