"""A member that is to join at a node which is none is told so, and does not try for ever (issue 3, "Bad input")."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from node.config_sources import load_node_config
from node.http.problems import errors_as_answers
from node.joining import JoinRefused, join_cluster
from node.refusals import NoMember
from raftgroup.membership import Membership


async def test_a_follower_at_join_names_a_member_and_the_node_stops(tmp_path: Path) -> None:
    async def follower(_: web.Request) -> web.Response:
        raise NoMember("GET /v1/members is not served by a follower: ask a member, such as 127.0.0.1:7401")

    app = web.Application(middlewares=[errors_as_answers])
    app.add_routes([web.route("*", "/{any:.*}", follower)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    given = {"id": "n9", "cluster": "c1", "data-dir": str(tmp_path), "join": site.name.rpartition("/")[2]}
    ports = {"http": "127.0.0.1:7409", "peer": "127.0.0.1:7509", "stream": "127.0.0.1:7609"}
    group: Any = SimpleNamespace(members=Membership(()), incarnation="x")
    try:
        with pytest.raises(JoinRefused, match=r"names no member of c1.*ask a member, such as 127\.0\.0\.1:7401"):
            await join_cluster(load_node_config({**given, **ports}, environ={}).own_node(), group, {})
    finally:
        await runner.cleanup()
