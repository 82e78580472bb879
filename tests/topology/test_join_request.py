"""A node that is started with --join asks one member until it is accepted, and not again when it has been removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from palisade.base.address import Address
from palisade.raftgroup.errors import MemberRemoved
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.topology import join_request
from palisade.topology.join_request import MISSING_MAX, JoinRefused, join_cluster
from palisade.topology.own_node import OwnNode

Serve = Callable[["AskedMember"], Awaitable["AskedMember"]]
ADDRESSES = {"http": "h:1", "peer": "h:2", "stream": "h:3"}


class OwnGroup:
    """The group as the joining node sees it. `looks`: what its log shows at each look; the last one stays."""

    incarnation = "i1"

    def __init__(self, looks: Sequence[Callable[[], Membership]]) -> None:
        self._looks = list(looks)

    @property
    def members(self) -> Membership:
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        return look()

    def check_alive(self) -> None:
        """The log shows a removal as an error of the next look."""


def nothing() -> Membership:
    return Membership(())


def itself() -> Membership:
    return Membership((Member("n4", MemberRole.LEARNER, OwnGroup.incarnation, ADDRESSES, True),))


def removal() -> Membership:
    raise MemberRemoved("n4 was removed")


class AskedMember:
    """Answers as a member. `lists`: whether the joining node is in each list; the last answer stays."""

    def __init__(self, lists: Sequence[bool], *, answers: bool = True) -> None:
        self._lists, self._answers = list(lists), answers
        self.asked = 0
        self.address = Address("127.0.0.1", 1)

    async def members(self, request: web.Request) -> web.Response:
        listed = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        return web.json_response({"members": [{"id": "n4", "incarnation": "i1"}] if listed else []})

    async def add(self, request: web.Request) -> web.Response:
        self.asked += 1
        if not self._answers and request.transport is not None:
            request.transport.abort()
        return web.json_response({"member": "n4"}, status=201)

    def own_node(self) -> OwnNode:
        return OwnNode("n4", "c1", ADDRESSES, False, Address("127.0.0.1", 1), "h:4", join=self.address)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def start(member: AskedMember) -> AskedMember:
        app = web.Application()
        app.add_routes([web.get("/v1/members", member.members), web.post("/v1/members", member.add)])
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        member.address = Address("127.0.0.1", runner.addresses[0][1])
        return member

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_request, "RETRY_S", 0.0)


async def join(member: AskedMember, looks: Sequence[Callable[[], Membership]]) -> None:
    group: Any = OwnGroup(looks)
    await join_cluster(member.own_node(), group, {})


async def test_node_that_was_removed_meanwhile_does_not_ask_again(serve: Serve) -> None:
    """It asked again and was added again, as a voter whose process had ended: three of four voters were left, and the
    next failure cost the majority."""
    member = await serve(AskedMember([False, True, False]))
    with pytest.raises(MemberRemoved):
        await join(member, [nothing] * 8 + [removal])
    assert member.asked == 1


async def test_accepted_node_that_a_lagging_member_does_not_list_yet_waits(serve: Serve) -> None:
    member = await serve(AskedMember([False, False, False, True]))
    await join(member, [nothing] * 6 + [itself])
    assert member.asked == 1


async def test_lost_response_is_known_from_the_list(serve: Serve) -> None:
    member = await serve(AskedMember([False, True], answers=False))
    await join(member, [nothing] * 4 + [itself])
    assert member.asked == 1


async def test_request_is_repeated_until_it_is_accepted(serve: Serve) -> None:
    member = await serve(AskedMember([False], answers=False))
    await join(member, [nothing] * 4 + [itself])
    assert member.asked == 4


async def test_node_that_was_removed_before_it_had_the_log_stops(serve: Serve) -> None:
    member = await serve(AskedMember([False, True, False]))
    with pytest.raises(JoinRefused, match="it was removed again before it had the log"):
        await join(member, [nothing] * (MISSING_MAX + 10))
    assert member.asked == 1
