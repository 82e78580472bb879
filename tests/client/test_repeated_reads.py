"""Reads that a node cannot answer yet are sent again until the client's deadline; they are never of unknown outcome."""

from __future__ import annotations

import pytest

from palisade.api.stream.server import StreamServer
from palisade.client import Client, OutcomeUnknown, Unavailable
from palisade.client.endpoints import Endpoints
from palisade.client.session import StreamSession
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put, Range
from palisade.wire.fencing_errors import ReadPending
from palisade.wire.stream_frames import FrameKind
from tests.client.test_client import Sent
from tests.support.proxy import Proxy
from tests.support.waiting import until


@pytest.mark.parametrize("name", ["segment", "catalog_objects", "scan_count"])
async def test_read_is_sent_again_while_a_change_that_it_sees_is_not_released(
    stream: StreamServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that died delays the release until its lease has ended: longer than the node lets one request wait.

    A request with a shorter time than the client's ended with the first refusal: a lookup of 5 s by a client of 60 s.
    """
    session = StreamSession(Endpoints([f"127.0.0.1:{stream.port}"]), 5.0)
    session.open()
    session.link = Sent()
    sent: list[int] = []
    monkeypatch.setattr(session, "_transmit", lambda operation, *_: sent.append(operation.number))
    answer = session.send(FrameKind.CALL, (name, []), 0, None, repeatable=True, writes=False)
    session._failed(1, ReadPending("not released yet"))
    await until(lambda: sent == [1, 1])
    session._succeeded(1, {"revision": 7})
    assert await answer == {"revision": 7}
    short = session.send(FrameKind.CALL, (name, []), 0, 1.0, repeatable=True, writes=False)
    session._failed(2, ReadPending("not released yet"))
    await until(lambda: sent == [1, 1, 2, 2])
    session._pending[2].deadline = session._loop.time() + 0.2
    session._failed(2, ReadPending("not released yet"))
    with pytest.raises(ReadPending):
        await short
    session.link = None
    await session.close()


async def test_transaction_that_only_reads_is_never_of_unknown_outcome(stream: StreamServer) -> None:
    """`palisade activation list` at a frozen node said that it may or may not have been applied (issue 16)."""
    async with Proxy(stream.port) as proxy, Client([proxy.endpoint], timeout_s=0.4, exactly_once=False) as client:
        absent = Compare(b"a", CompareTarget.VERSION, CompareResult.EQUAL, 0)
        assert (await client.txn([absent], [Range(b"a")])).succeeded
        proxy.muted = True
        with pytest.raises(Unavailable):
            await client.txn([absent], [Range(b"a")], [Range(b"b")])
        with pytest.raises(OutcomeUnknown):
            await client.txn([absent], [Range(b"a")], [Put(b"b", b"1")])
