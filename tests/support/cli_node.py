"""A node in a thread of its own, for tests of the command line: commands run their own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.api.stream.server import StreamServer
from palisade.metastore.command_codec import encode_command
from palisade.metastore.limits import Limits
from palisade.metastore.requests import FoundCluster
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.service.authorization.authorizer import NoUser, some_user
from palisade.service.catalog import Catalog
from palisade.service.key_values import KeyValues
from tests.support.fake_group import FakeGroup, fake_group
from tests.support.hand_clock import Clock
from tests.support.permission_world import FenceableRows, Users, gate_over, usual
from tests.support.releases import ControlledReleases


class CliNode:
    """`endpoint` is the address of its stream, `http` that of HTTP; `do` runs a coroutine in its loop.

    `rows`: the permissions of a guarded node.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, services: NodeServices, group: FakeGroup, addresses: Any,
        rows: FenceableRows | None = None,
    ) -> None:  # fmt: skip
        self.group = group
        self.services = services
        self.endpoint, self.http = addresses["stream"], addresses["http"]
        self.rows = rows
        self._loop = loop

    def do(self, action: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)


@contextmanager
def cli_node(
    deadline_s: float = 0.3,
    limits: Limits | None = None,
    *,
    guarded: bool = False,
    no_user: NoUser = some_user,
    **views: Any,
) -> Iterator[CliNode]:
    """`guarded`: clients sign in, with the users of `permission_world.usual`. `no_user`: as of an `Authorizer`.
    `views`: fields of `NodeServices`."""
    started: list[CliNode] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        group = fake_group(limits)
        group.apply([encode_command(FoundCluster("id-1"))])
        service = KeyValues(group, group.store, deadline_s=deadline_s)
        catalog = Catalog(service, "n1", ControlledReleases())  # type: ignore[arg-type]
        rows = FenceableRows(service) if guarded else None
        if rows is not None:
            await usual(Users(service))
            views["authorizer"] = gate_over(rows, Clock(), no_user=no_user)
        services = NodeServices(service, catalog=catalog, **views)
        procedures = asyncio.create_task(catalog.runner.run())
        server, http = StreamServer(services, "demo"), HttpServer(services, "demo", "n1")
        await server.start("127.0.0.1", 0)
        await http.start("127.0.0.1", 0)
        ports = {"http": http.port, "stream": server.port}
        addresses = {"peer": "127.0.0.1:7501", **{name: f"127.0.0.1:{port}" for name, port in ports.items()}}
        group._members = Membership((Member("n1", MemberRole.VOTER, "fake", addresses),))
        started.append(CliNode(asyncio.get_running_loop(), services, group, addresses, rows))
        ready.set()
        await stop.wait()
        procedures.cancel()
        await http.close()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="cli node", daemon=True)
    thread.start()
    if not ready.wait(10):
        raise RuntimeError("the node of the test did not start")
    try:
        yield started[0]
    finally:
        started[0].do(stop.set)
        thread.join(10)
