"""What a client takes for endpoints: checked when it is created, and refused with the address that is not one."""

from __future__ import annotations

import asyncio

import pytest

import palisade
from palisade.api.stream.server import StreamServer
from palisade.client.endpoints import Endpoints, EndpointsLike, read_endpoints

ACCEPTED: list[tuple[EndpointsLike, list[str]]] = [
    ("127.0.0.1:7601", ["127.0.0.1:7601"]),
    ("a:1, b:2,,a:1", ["a:1", "b:2"]),
    (["a:1", "b:2,c:3"], ["a:1", "b:2", "c:3"]),
    ([("a", 1), ("::1", 2)], ["a:1", "[::1]:2"]),
    ("[::1]:7601", ["[::1]:7601"]),
]
REFUSED: list[tuple[object, type[Exception], str]] = [
    ("", ValueError, "give host:port"),
    ([], ValueError, "give host:port"),
    ("localhost", ValueError, "'localhost' is not host:port; write it such as 127.0.0.1:7601"),
    (7601, TypeError, "endpoints: 7601 is not an address"),
    (b"127.0.0.1:7601", TypeError, "endpoints: b'127.0.0.1:7601' is not an address"),
    ("a:b", ValueError, "'b' is not a port"),
    (["a:1", "b:99999"], ValueError, "port 99999 is out of range"),
    (["7", "."], ValueError, "'7' is not host:port"),
    ("http://a:1", ValueError, "not host:port"),
    ([7601], TypeError, "7601 is not an address"),
    ([("a", "1")], TypeError, "is not an address"),
]


@pytest.mark.parametrize(("given", "expected"), ACCEPTED)
def test_endpoints_may_be_a_text_a_list_or_pairs(given: EndpointsLike, expected: list[str]) -> None:
    assert read_endpoints(given) == expected
    assert Endpoints(given).given == tuple(expected)


@pytest.mark.parametrize(("given", "error", "text"), REFUSED)
def test_client_refuses_invalid_endpoints(given: object, error: type[Exception], text: str) -> None:
    """It took each character of a text for a host, or died in a background task (issue 16, 5)."""
    for create in (palisade.Client, palisade.SyncClient, palisade.connect):
        with pytest.raises(error, match=text):
            create(given)  # type: ignore[arg-type]


async def test_announced_address_that_is_none_does_not_end_the_client(
    stream: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that announces nonsense for the leader's address: the client stays where it is."""
    async with palisade.Client([f"127.0.0.1:{stream.port}"], timeout_s=3) as client:
        client._session._route.learn(["nonsense", "a:b"])
        client._session._route.advance()
        await client.put("a", "1")
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text
