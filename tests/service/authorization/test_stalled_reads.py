"""Reads of a client that reads no answers wait for it, and are executed by the rights that it has then."""

from __future__ import annotations

from palisade.api.stream.server import StreamServer
from palisade.metastore.command_codec import operation_fields
from palisade.metastore.requests import Put, Range
from palisade.service.callers import UNRESTRICTED
from palisade.service.key_values import KeyValues
from palisade.wire.credentials import to_hello
from palisade.wire.stream_frames import FrameKind
from tests.service.authorization.test_stream import ALICE, raw
from tests.support.permission_world import Users
from tests.support.waiting import until

READS = 60
BIG = 500_000


async def test_read_that_waited_for_its_client_needs_the_right_when_it_is_executed(
    stream: StreamServer, service: KeyValues, users: Users
) -> None:
    """Else a client would keep reads in store, and get by them what is written after its rights were revoked."""
    await service.write(Put(b"/a/k", b"v" * BIG), caller=UNRESTRICTED)
    async with raw(stream, to_hello(ALICE)) as connection:
        for number in range(READS):
            connection.send(FrameKind.READS, [number, list(operation_fields(Range(b"/a/k")))])
        (serving,) = stream.connections
        await until(lambda: not serving._writable.is_set() and serving._in_flight > 0)
        await users.regrant("alice")
        await service.write(Put(b"/a/k", b"secret"), caller=UNRESTRICTED)
        results, refusals = [], []
        while len(results) + len(refusals) < READS:
            kind, body = await connection.frame()
            if kind == FrameKind.RESULTS:
                results += body[1::2]
            else:
                assert kind == FrameKind.FAILURES
                refusals += body[1::2]
    assert not [row for _, _, rows, *_ in results for row in rows if row[1] == b"secret"]
    assert refusals
    assert {refusal[0] for refusal in refusals} == {"permission-denied"}
