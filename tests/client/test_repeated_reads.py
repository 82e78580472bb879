"""Reads that a node cannot answer yet are sent again until the client's deadline."""

from __future__ import annotations

import pytest

from palisade.api.stream.server import StreamServer
from palisade.client.endpoints import Endpoints
from palisade.client.session import StreamSession
from palisade.wire.fencing_errors import ReadPending
from palisade.wire.stream_frames import FrameKind
from tests.client.test_client import Sent
from tests.support.waiting import until


@pytest.mark.parametrize("name", ["segment", "catalog_objects", "scan_count"])
async def test_read_is_sent_again_while_a_change_that_it_sees_is_not_released(
    stream: StreamServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that died delays the release until its lease has ended: longer than the node lets one request wait."""
    session = StreamSession(Endpoints([f"127.0.0.1:{stream.port}"]), 5.0)
    session.open()
    session._link = Sent()
    sent: list[int] = []
    monkeypatch.setattr(session, "_transmit", lambda operation, *_: sent.append(operation.number))
    answer = session.send(FrameKind.CALL, (name, []), 0, None, repeatable=True, writes=False)
    session._failed(1, ReadPending("not released yet"))
    await until(lambda: sent == [1, 1])
    session._succeeded(1, {"revision": 7})
    assert await answer == {"revision": 7}
    late = session.send(FrameKind.CALL, (name, []), 0, 0.1, repeatable=True, writes=False)
    session._failed(2, ReadPending("not released yet"))
    with pytest.raises(ReadPending):
        await late
    session._link = None
    await session.close()
