"""Requests to add a member are validated, over HTTP and over the stream (bugs-found.md, 1 and 2).

A membership is an entry of the log: an empty id, or an unreachable address, would stay with every node.
"""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from palisade.api.services import NodeServices
from palisade.api.stream.calls import Calls
from palisade.client import Client
from palisade.metastore.errors import InvalidRequest
from palisade.raftgroup.membership import MemberRole
from palisade.service.key_values import KeyValues
from palisade.topology.member_request import new_member
from tests.support.fake_group import FakeGroup

PEER = {"peer": "127.0.0.1:7502"}
WRONG: list[tuple[Any, Any, Any, Any]] = [
    ("", "abc", PEER, True),
    ("n 2\n", "abc", PEER, True),
    ("n" * 64, "abc", PEER, True),
    (["n2"], "abc", PEER, True),
    ("n2", "", PEER, True),
    ("n2", 7, PEER, True),
    ("n2", "i" * 65, PEER, True),
    ("n2", "\ud800", PEER, True),
    ("n2", "abc", [], True),
    ("n2", "abc", {}, True),
    ("n2", "abc", {"http": "127.0.0.1:7402"}, True),
    ("n2", "abc", {"peer": "garbage"}, True),
    ("n2", "abc", {"peer": 7}, True),
    ("n2", "abc", {1: "127.0.0.1:1", **PEER}, True),
    ("n2", "abc", {"x" * 65: "127.0.0.1:1", **PEER}, True),
    ("n2", "abc", PEER | {f"a{number}": "127.0.0.1:1" for number in range(8)}, True),
    ("n2", "abc", PEER, "yes"),
]


@pytest.mark.parametrize(("id_", "incarnation", "addresses", "voter"), WRONG)
def test_invalid_member_is_refused(id_: Any, incarnation: Any, addresses: Any, voter: Any) -> None:
    with pytest.raises(InvalidRequest):
        new_member(id_, incarnation, addresses, voter)


def test_valid_member_begins_as_a_learner() -> None:
    member = new_member("n2", "abc", PEER, True)
    assert (member.role, member.becomes_voter, member.addresses) == (MemberRole.LEARNER, True, PEER)


@pytest.mark.parametrize(
    "arguments", [["n2", "abc", [[[]]], True], ["", "abc", PEER, True], [["n2"], "abc", PEER, True]]
)
async def test_the_stream_refuses_it(service: KeyValues, group: FakeGroup, arguments: list[Any]) -> None:
    with pytest.raises(InvalidRequest):
        await Calls(NodeServices(service), "demo").run("member_add", arguments)
    assert [member.id for member in group.members.members] == ["n1"]


async def test_http_refuses_it(http: ClientSession, group: FakeGroup) -> None:
    for id_, addresses in (("", PEER), ("n2", {"peer": "garbage"}), ("\ud800", PEER)):
        async with http.post("/v1/members", json={"id": id_, "incarnation": "x", "addresses": addresses}) as answer:
            assert answer.status == 400
            assert (await answer.json())["code"] == "invalid-request"
    assert [member.id for member in group.members.members] == ["n1"]


async def test_a_program_hears_why(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="not host:port"):
        await client.member_add("n2", "abc", {"peer": "garbage"})
