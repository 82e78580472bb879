"""The change feed over HTTP, and bad input on both sides (issue 3: "a clear error, nothing lost, the cluster
undisturbed"; scenarios.md, "Everywhere": garbage and half frames).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgpack
import pytest
from aiohttp import ClientSession, web

from palisade.api.http.server import HttpServer
from palisade.base.digest import BITMAP_BYTES, fingerprint_of
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import BeginGeneration, Compact, FoundCluster, Put
from palisade.raftgroup.errors import MemberRemoved
from palisade.recovery import feed_messages as wire
from palisade.recovery.chunks import is_whole, unpack_fingerprints, unpack_rows, unpack_spans
from palisade.recovery.errors import PinRefused, SourceCompacted, SourceUnavailable
from palisade.recovery.remote_source import RemoteSource
from palisade.vault.change import item_of
from tests.support.fake_group import FakeGroup

ALL = b"\xff" * BITMAP_BYTES
LARGEST = (1 << 64) - 1
LM = 11


@pytest.fixture
async def group(group: FakeGroup) -> FakeGroup:
    """Revisions 2 to 11 are one key each."""
    group.apply([encode_command(FoundCluster("id-1"))])
    for number in range(10):
        group.apply([encode_command(Put(b"/k/%d" % number, b"v"))])
    return group


@pytest.fixture
async def source(server: HttpServer) -> AsyncIterator[RemoteSource]:
    made = RemoteSource("f1", lambda: [f"127.0.0.1:{server.port}"])
    yield made
    await made.close()


async def asked(http: ClientSession, question: str, body: bytes, kind: str = wire.CONTENT_TYPE) -> tuple[int, Any]:
    async with http.post(f"/v1/feed/{question}", data=body, headers={"Content-Type": kind}) as answer:
        content = await answer.read()
        return answer.status, wire.unpack(content) if answer.content_type == wire.CONTENT_TYPE else content


async def works(source: RemoteSource, group: FakeGroup) -> None:
    """Nothing has changed, and valid requests are answered."""
    state = await source.state(LM)
    assert (state.latest, state.keys, state.chain_at) == (LM, 10, group.store.chain_at(LM))


async def test_remote_source_answers_as_the_store(source: RemoteSource, group: FakeGroup) -> None:
    await works(source, group)
    revisions = await source.changes(3, 5)
    assert [revision.number for revision in revisions] == [3, 4, 5]
    assert revisions[-1].chain == group.store.chain_at(5)
    sums = await source.sums(LM)
    assert (sums.chain, wire.pack_sums(sums.sums)) == (group.store.digest().chain, group.store.digest().buckets)
    rows = await source.rows(LM, ALL, 9, b"", None)
    assert is_whole(rows)
    assert [item_of(row).key for row in unpack_rows(rows.payload)] == [b"/k/8", b"/k/9"]
    spans = unpack_spans((await source.spans(LM, b"/k/5")).payload)
    assert [(span.end, span.keys) for span in spans] == [(b"", 5)]
    alive = await source.fingerprints(LM, ALL, b"/k/8", b"/k/9")
    assert unpack_fingerprints(alive.payload) == {fingerprint_of(b"/k/8")}
    alive = await source.fingerprints(LM, ALL, b"/k/9", None)
    assert unpack_fingerprints(alive.payload) == {fingerprint_of(b"/k/9")}
    assert 0 < await source.pin(5, 2.0) <= 2.0
    group.apply([encode_command(Compact(LM))])
    assert group.store.minimal_revision == 5
    await source.unpin()


HISTORY_QUESTIONS: list[tuple[str, list[Any]]] = [
    ("changes", [3, 5]),
    ("sums", [LM]),
    ("rows", [LM, ALL, 9, b"", None]),
    ("spans", [LM, b""]),
    ("fingerprints", [LM, ALL, b"", None]),
]


@pytest.mark.parametrize(("question", "asked_for"), HISTORY_QUESTIONS)
async def test_request_of_another_history_is_refused_as_compacted(
    http: ClientSession, group: FakeGroup, question: str, asked_for: list[Any]
) -> None:
    """tests/sim, scenario restores, seed 6: a follower applied revisions of a restored cluster on top of lost ones."""
    for history in (None, ["id-1", 1]):
        assert (await asked(http, question, msgpack.packb([*asked_for, history])))[0] == 200
    for history in (["id-1", 2], ["id-2", 1]):
        status, (kind, text, minimal) = await asked(http, question, msgpack.packb([*asked_for, history]))
        assert (status, kind, minimal) == (410, "compacted", group.store.minimal_revision)
        assert "this is generation 1 of cluster id-1" in text


async def test_source_uses_the_history_of_the_last_state(source: RemoteSource, group: FakeGroup) -> None:
    assert (await source.state(0)).generation == 1
    group.apply([encode_command(BeginGeneration(2))])
    with pytest.raises(SourceCompacted, match="this is generation 2 of cluster id-1"):
        await source.changes(3, 5)
    assert (await source.state(0)).generation == 2
    assert len(await source.changes(3, 5)) == 3


async def test_compacted_revision_is_refused_with_mm(source: RemoteSource, group: FakeGroup) -> None:
    group.apply([encode_command(Compact(7))])
    for ask in (source.changes(5, 9), source.sums(6), source.rows(6, ALL, 0, b"", None), source.pin(6, 1.0)):
        with pytest.raises(SourceCompacted) as gone:
            await ask
        assert gone.value.minimal_revision == 7


async def test_removed_member_is_an_unavailable_source(
    http: ClientSession, source: RemoteSource, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/sim, scenario members, seed 11: a follower ended with the error of the member that it asked for changes."""

    def removed() -> None:
        raise MemberRemoved("n1 was removed")

    monkeypatch.setattr(group, "check_alive", removed)
    answer = await asked(http, "changes", msgpack.packb([LM + 1, LM + 1, None]))
    assert answer == (503, ["unavailable", "n1 was removed", 0])
    with pytest.raises(SourceUnavailable, match="n1 was removed"):
        await source.changes(LM + 1, LM + 1)


BAD = [
    ("state", []),
    ("state", {}),
    ("state", None),
    ("state", "state"),
    ("state", [-1]),
    ("state", [True]),
    ("state", [1.5]),
    ("state", ["1"]),
    ("state", [b"1"]),
    ("state", [None]),
    ("state", [1 << 63]),
    ("state", [1, 2]),
    ("changes", [1, None]),
    ("changes", [1, 2]),
    ("changes", [1, 2, []]),
    ("changes", [1, 2, "id-1"]),
    ("changes", [1, 2, ["id-1", "1"]]),
    ("sums", [LM, [b"id-1", 1]]),
    ("changes", [1, LARGEST, None]),
    ("changes", [[1], [2], None]),
    ("pin", ["", 5, 1000]),
    ("pin", ["n" * 101, 5, 1000]),
    ("pin", ["\N{SNOWMAN}" * 40, 5, 1000]),
    ("pin", [b"n", 5, 1000]),
    ("pin", ["n", 5, LARGEST]),
    ("pin", ["n", LARGEST, 1000]),
    ("unpin", ["n" * 1_000_000]),
    ("unpin", [7]),
    ("sums", ["x", None]),
    ("rows", [LM, ALL + b"x", 0, b"", None, None]),
    ("rows", [LM, b"", 0, b"", None, None]),
    ("rows", [LM, ALL.hex(), 0, b"", None, None]),
    ("rows", [LM, ALL, 0, "", None, None]),
    ("rows", [LM, ALL, 0, None, None, None]),
    ("rows", [LM, ALL, -1, b"", None, None]),
    ("rows", [LM, ALL, 0, b"k" * 10_000, None, None]),
    ("rows", [LM, ALL, 0, b"", b"k" * 10_000, None]),
    ("spans", [LM, None]),
    ("spans", [LM, "x", None]),
    ("spans", [-1, b"", None]),
    ("spans", [LM, b"k" * 1_000_000, None]),
    ("fingerprints", [LM, ALL, b"", None]),
    ("fingerprints", [LM, ALL[1:], b"", None, None]),
    ("fingerprints", [LM, ALL, b"k" * 1_000_000, None, None]),
    ("fingerprints", [LM, ALL, b"", b"k" * 1_000_000, None]),
]


@pytest.mark.parametrize(("question", "value"), BAD)
async def test_malformed_request_is_refused_with_its_fault(
    http: ClientSession, source: RemoteSource, group: FakeGroup, question: str, value: Any
) -> None:
    proposed = group.submitted
    status, (kind, text, _) = await asked(http, question, msgpack.packb(value))
    assert (status, kind) == (400, "bad-request")
    assert 10 < len(text) < 300
    assert group.submitted == proposed, "nothing of it has come into the log"
    await works(source, group)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91",
        msgpack.packb([LM]) + b"x",
        b"\x91" * 100_000,
        b"[1]",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x00" * 70_000,
    ],
)
async def test_truncated_or_invalid_msgpack_is_refused(http: ClientSession, body: bytes) -> None:
    assert (await asked(http, "state", body))[0] == 400


async def test_wrong_content_type_unknown_request_and_huge_body_are_refused(http: ClientSession) -> None:
    body = msgpack.packb([LM])
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
        assert (await asked(http, "state", body, kind))[0] == 415
    assert (await asked(http, "nonsense", body))[0] == 404
    assert (await asked(http, "", body))[0] == 404
    assert (await asked(http, "rows", bytes(4 * 1024 * 1024)))[0] == 413
    async with http.get("/v1/feed/state") as answer:
        assert answer.status == 405


async def test_body_without_end_is_abandoned(http: ClientSession, source: RemoteSource, group: FakeGroup) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b"\x91"
        await asyncio.sleep(30)

    async with http.post("/v1/feed/state", data=slowly(), headers={"Content-Type": wire.CONTENT_TYPE}) as answer:
        assert answer.status == 408
    await works(source, group)


async def test_future_revision_is_refused_at_once(http: ClientSession) -> None:
    """After a barrier the revision cannot come: it is of a history that a restore has ended."""
    for question, value in (
        ("sums", [LM + 1, None]),
        ("rows", [LM + 1, ALL, 0, b"", None, None]),
        ("fingerprints", [(1 << 63) - 1, ALL, b"", None, None]),
        ("spans", [(1 << 63) - 1, b"", None]),
        ("pin", ["f1", LM + 1, 1000]),
    ):
        status, (kind, _, minimal) = await asked(http, question, msgpack.packb(value))
        assert (status, kind, minimal) == (410, "compacted", 1), question


async def test_refused_pin_does_not_stop_the_recovery(source: RemoteSource, group: FakeGroup) -> None:
    for number in range(group.store.limits.pins_max):
        other = RemoteSource(f"other-{number}", source._addresses.in_order)
        await other.pin(5, 60.0)
        await other.close()
    with pytest.raises(PinRefused, match="hold MM already"):
        await source.pin(5, 60.0)


# The other side: what a node that asks makes of an answer.

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Stranger:
    """Answers every request in the same way."""

    def __init__(self, status: int, body: bytes, kind: str) -> None:
        self.status, self.body, self.kind = status, body, kind
        self.asked = 0
        app = web.Application()
        app.add_routes([web.post("/v1/feed/{question}", self._answer)])
        self.runner = web.AppRunner(app)

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(status=self.status, body=self.body, content_type=self.kind)

    async def __aenter__(self) -> str:
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        return str(site.name).rpartition("/")[2]

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()


NONSENSE: list[Any] = [
    *(None, 7, "text", b"bytes", {}, [], [None], [[]], [1, 2, 3, 4, 5, 6]),
    *(["c", 1, "x", 1, 1, None], ["c", 1, 9, 1, 1, "chain"], ["c", 1, -9, 1, 1, None], [b"c", 1, 9, 1, 1, None]),
    *([["5", [], b""]], [[5, "bodies", b""]], [[5, [1, 2], b""]], [[5, [b"x"], 7]], [[5, [b"x"]]]),
    *([5, b"x", b"short"], [5, "chain", bytes(65536)], [5, b"chain", bytes(65536)]),
    *(["payload", b"sum", None], [b"payload", 5, None], [b"payload", b"sum", 7], [b"", b"", b"", b""]),
]
FITS: list[tuple[int, Any]] = [(1, []), (2, 7)]
"""No changes, and what is left of a pin."""


def questions(source: RemoteSource) -> list[Callable[[], Awaitable[Any]]]:
    return [
        lambda: source.state(5),
        lambda: source.changes(5, 9),
        lambda: source.pin(5, 1.0),
        lambda: source.sums(5),
        lambda: source.rows(5, ALL, 0, b"", None),
        lambda: source.fingerprints(5, ALL, b"", None),
        lambda: source.spans(5, b""),
    ]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=lambda value: str(value)[:30])
async def test_malformed_answer_is_ignored_and_another_member_is_asked(
    nonsense: Any, server: HttpServer, group: FakeGroup
) -> None:
    async with Stranger(200, msgpack.packb(nonsense), wire.CONTENT_TYPE) as stranger:
        alone = RemoteSource("f1", lambda: [stranger])
        both = RemoteSource("f1", lambda: [stranger, f"127.0.0.1:{server.port}"])
        try:
            for number, ask in enumerate(questions(alone)):
                if (number, nonsense) in FITS:
                    continue
                with pytest.raises(SourceUnavailable, match=stranger):
                    await ask()
            await works(both, group)
        finally:
            await alone.close()
            await both.close()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"\x91", wire.CONTENT_TYPE),
        (200, b"", wire.CONTENT_TYPE),
        (200, b"<html>" * 100_000, "text/html"),
        (500, b"a fault", "text/plain"),
        (410, msgpack.packb("compacted"), wire.CONTENT_TYPE),
        (410, msgpack.packb(["compacted", "text", "one"]), wire.CONTENT_TYPE),
        (410, msgpack.packb(["compacted", "text", -1]), wire.CONTENT_TYPE),
        (409, msgpack.packb(["pin-refused"]), wire.CONTENT_TYPE),
        (503, msgpack.packb(["nonsense", 7, None]), wire.CONTENT_TYPE),
        (302, b"", wire.CONTENT_TYPE),
    ],
)
async def test_any_other_answer_counts_as_no_answer(status: int, body: bytes, kind: str) -> None:
    async with Stranger(status, body, kind) as stranger:
        source = RemoteSource("f1", lambda: [stranger])
        try:
            for ask in questions(source):
                with pytest.raises(SourceUnavailable) as unavailable:
                    await ask()
                assert len(str(unavailable.value)) < 500
        finally:
            await source.close()


async def test_answer_without_end_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.recovery.remote_source.ANSWER_BYTES_MAX", 1 << 20)
    async with Stranger(200, bytes(2 << 20), wire.CONTENT_TYPE) as stranger:
        source = RemoteSource("f1", lambda: [stranger])
        try:
            with pytest.raises(SourceUnavailable, match="exceeds 1048576 bytes"):
                await source.sums(5)
        finally:
            await source.close()


async def test_source_without_members_is_unavailable() -> None:
    source = RemoteSource("f1", list)
    with pytest.raises(SourceUnavailable, match="no address of a member of the Raft group is known"):
        await source.state(1)
    await source.close()
