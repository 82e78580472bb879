"""The client against the stream of one node: every operation, and what happens when connections break (M3, M4)."""

from __future__ import annotations

import asyncio

import pytest

from palisade.api.services import NodeServices
from palisade.api.stream.server import StreamServer
from palisade.client import Client, OutcomeUnknown, Unavailable
from palisade.client.connection import ClientConnection
from palisade.client.endpoints import Endpoints
from palisade.client.session import StreamSession
from palisade.client.watch_handle import WatchHandle
from palisade.metastore.command_codec import encode_command
from palisade.metastore.errors import Compacted, FutureRevision, KeyTooLarge, LeaseNotFound, ValueTooLarge
from palisade.metastore.limits import Limits
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, SortOrder, Txn
from palisade.metastore.results import RangeResult, RevisionEvents
from palisade.service.callers import UNRESTRICTED
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import PermissionDenied
from palisade.wire.stream_frames import FrameKind
from tests.support.fake_group import FakeGroup, fake_group
from tests.support.proxy import Proxy
from tests.support.waiting import until


async def take(watch: WatchHandle, count: int) -> list[RevisionEvents]:
    async with asyncio.timeout(5):
        return [await anext(watch) for _ in range(count)]


async def test_get_returns_what_was_put(client: Client) -> None:
    first = await client.put("a", "1")
    second = await client.put(b"a", b"2", prev_kv=True)
    found = await client.get("a")
    assert (first.revision, second.revision) == (2, 3)
    assert second.prev_kv is not None
    assert second.prev_kv.value == b"1"
    assert found is not None
    assert (found.value, found.create_revision, found.mod_revision, found.version) == (b"2", 2, 3, 2)
    assert await client.get("b") is None
    assert (await client.get("a", revision=2) or found).value == b"1"


async def test_range_has_its_order_limit_and_count(client: Client) -> None:
    for name in "abc":
        await client.put(f"k/{name}", name)
    found = await client.range("k/", prefix=True, limit=2, sort_order=SortOrder.DESCEND)
    assert [kv.value for kv in found.kvs] == [b"c", b"b"]
    assert (found.more, found.count) == (True, 3)


async def test_delete_returns_what_it_removed(client: Client) -> None:
    await client.put("k/a", "1")
    await client.put("k/b", "2")
    deleted = await client.delete("k/", prefix=True, prev_kv=True)
    assert (deleted.deleted, [kv.value for kv in deleted.prev_kvs]) == (2, [b"1", b"2"])


async def test_transaction_executes_the_branch_of_its_compares(client: Client) -> None:
    absent = Compare(b"a", CompareTarget.VERSION, CompareResult.EQUAL, 0)
    nested = Txn((), (Put(b"b", b"2"),), ())
    first = await client.txn([absent], [Put(b"a", b"1"), nested], [Range(b"a")])
    again = await client.txn([absent], [Put(b"a", b"1")], [Range(b"a"), DeleteRange(b"b")])
    assert (first.succeeded, first.revision) == (True, 2)
    assert (again.succeeded, again.revision) == (False, 3)


async def test_transaction_that_only_reads_makes_no_revision(client: Client) -> None:
    await client.put("a", "1")
    found = await client.txn([], [Range(b"a")])
    assert (found.revision, found.succeeded) == (2, True)


async def test_lease_deletes_its_keys_when_revoked(client: Client) -> None:
    lease = await client.lease_grant(60)
    await client.put("a", "1", lease=lease.id)
    info = await client.lease_info(lease.id)
    assert (info.granted_ttl_s, info.keys) == (60, (b"a",))
    assert await client.leases() == (lease.id,)
    assert (await client.lease_keep_alive(lease.id)).ttl_s == 60
    await client.lease_revoke(lease.id)
    assert await client.get("a") is None
    with pytest.raises(LeaseNotFound):
        await client.lease_info(lease.id)


async def test_refusals_arrive_as_their_errors(client: Client, group: FakeGroup) -> None:
    await client.put("a", "1")
    await client.put("a", "2")
    before = group.store.digest()
    with pytest.raises(KeyTooLarge, match="4096"):
        await client.put("k" * 5000, "1")
    with pytest.raises(ValueTooLarge):
        await client.put("a", b"v" * (1 << 20) + b"v")
    with pytest.raises(FutureRevision):
        await client.get("a", revision=99)
    with pytest.raises(LeaseNotFound):
        await client.put("a", "1", lease=77)
    assert group.store.digest() == before


async def test_compacted_revision_is_refused_with_the_oldest_one(client: Client) -> None:
    for number in range(4):
        await client.put("a", str(number))
    assert (await client.compact(4)).minimal_revision == 4
    with pytest.raises(Compacted) as refused:
        await client.get("a", revision=3)
    assert refused.value.minimal_revision == 4


async def test_long_range_arrives_complete_and_of_one_revision(client: Client) -> None:
    value = b"v" * 100_000
    await client.put_many((f"k/{number:03}", value) for number in range(200))
    found = await client.range("k/", prefix=True)
    assert (len(found.kvs), found.more, found.count) == (200, False, 200)
    assert [kv.key for kv in found.kvs] == [b"k/%03d" % number for number in range(200)]


async def test_put_many_writes_and_counts_every_pair(client: Client, group: FakeGroup) -> None:
    heard: list[int] = []
    written = await client.put_many(((f"k{n}", b"v") for n in range(3000)), outstanding=700, progress=heard.append)
    assert (written, heard[-1], group.store.key_count) == (3000, 3000, 3000)


async def test_put_many_ends_with_the_first_error(client: Client) -> None:
    with pytest.raises(KeyTooLarge):
        await client.put_many([("a", "1"), ("k" * 9000, "2")])


@pytest.mark.parametrize("outstanding", [0, -1])
async def test_put_many_refuses_less_than_one_outstanding_put(client: Client, outstanding: int) -> None:
    """Instead of waiting forever."""
    async with asyncio.timeout(2):
        with pytest.raises(ValueError, match="outstanding"):
            await client.put_many([("a", "1")], outstanding=outstanding)


async def test_node_with_small_limits_accepts_gathered_requests() -> None:
    """`limit-request-bytes` bounds one request, not a frame of many (M8)."""
    group = fake_group(Limits(key_bytes_max=64, value_bytes_max=1000, request_bytes_max=2000))
    server = StreamServer(NodeServices(KeyValues(group, group.store)), "demo")
    await server.start("127.0.0.1", 0)
    async with Client([f"127.0.0.1:{server.port}"], follow_leader=False, timeout_s=3) as client:
        assert await client.put_many((f"k{number}", b"v" * 1000) for number in range(1500)) == 1500
        puts = [client.put(f"k{number}", b"w" * 1000, prev_kv=True) for number in range(800)]
        assert len(await asyncio.gather(*puts)) == 800
    await server.close()


async def test_range_in_the_past_of_often_written_keys_takes_many_short_turns(
    service: KeyValues, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 keys, written 100 times each since, took 1.1 s in one turn, and so did their count (R5)."""
    keys = [b"%03d" % number for number in range(300)]
    for value in [b"first", *[bytes(100)] * 70]:
        group.apply([encode_command(Put(key, value)) for key in keys])
    turns: list[int] = []
    original = group.store.range

    def watched(request: Range) -> RangeResult:
        before = group.store.blocks_read
        found = original(request)
        turns.append(group.store.blocks_read - before)
        return found

    monkeypatch.setattr(group.store, "range", watched)
    for limit in (0, 10, 100, 300, 301):
        found = await service.range(Range(b"\0", b"\0", revision=1 + len(keys), limit=limit), caller=UNRESTRICTED)
        assert [kv.key for kv in found.kvs] == keys[: limit or None]
        assert {kv.value for kv in found.kvs} == {b"first"}
        assert (found.count, found.more) == (len(keys), 0 < limit < len(keys))
    assert max(turns) < 66 * 64


class Sent(ClientConnection):
    """Takes note of what would be sent."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop(), lambda _kind, _body: None)
        self.numbers: list[int] = []

    def gather_put(self, number: int, request_id: tuple[str, int] | None, key: bytes, value: bytes) -> None:
        self.numbers.append(number)


@pytest.mark.parametrize("repeatable", [False, True])
async def test_refused_request_is_sent_again_once_although_another_connection_begins(
    stream: StreamServer, repeatable: bool
) -> None:
    """A change of leader: the old one refuses, the client moves to the new one and sends what is open, and the try
    again that was due after the refusal comes on top. Without a request id that would be a second write (M3)."""
    session = StreamSession(Endpoints([f"127.0.0.1:{stream.port}"]), 5.0)
    session.open()
    first, second = Sent(), Sent()
    session.link = first
    answer = session.send(FrameKind.WRITES, (None, b"a", b"1"), 0, None, repeatable=repeatable, writes=True)
    session._failed(1, Unavailable("the leader is going"))
    session._begin(second)
    session._again(1)
    assert first.numbers == [1]
    assert second.numbers == ([1, 1] if repeatable else [1])
    session._succeeded(1, (1, 2))
    await answer
    session.link = None
    await session.close()


@pytest.mark.parametrize("error", [Unavailable("the leader is going"), PermissionDenied("not any more")])
async def test_refusal_of_the_latest_attempt_does_not_cover_an_earlier_one(
    stream: StreamServer, error: Exception
) -> None:
    """Its connection broke, so it may be applied (M3). Found by the simulator: strange 61."""
    session = StreamSession(Endpoints([f"127.0.0.1:{stream.port}"]), 5.0)
    session.open()
    first = Sent()
    session._begin(first)
    answer = session.send(FrameKind.WRITES, (("id", 1), b"a", b"1"), 0, 0.5, repeatable=True, writes=True)
    first.closed.set_result("reset by the other side")
    session._lost(first)
    session._begin(Sent())
    session._failed(1, error)
    with pytest.raises(OutcomeUnknown, match=str(error)):
        await answer
    session.link = None
    await session.close()


# Broken connections.


async def test_put_whose_response_is_lost_is_executed_once(stream: StreamServer, group: FakeGroup) -> None:
    """Scenario "Retries: same id twice" (M3): the retry over the next connection gets the first result."""
    async with Proxy(stream.port) as proxy, Client([proxy.endpoint], follow_leader=False) as client:
        await client.put("a", "1")
        proxy.muted = True
        answer = asyncio.ensure_future(client.put("a", "2"))
        await until(lambda: group.store.revision == 3)
        proxy.muted = False
        proxy.cut()
        assert (await answer).revision == 3
        found = await client.get("a")
    assert found is not None
    assert (found.version, group.store.revision) == (2, 3)


async def test_lost_response_without_request_ids_is_an_unknown_outcome(stream: StreamServer, group: FakeGroup) -> None:
    async with (
        Proxy(stream.port) as proxy,
        Client([proxy.endpoint], follow_leader=False, exactly_once=False) as client,
    ):
        await client.put("a", "1")
        proxy.muted = True
        answer = asyncio.ensure_future(client.put("a", "2"))
        await until(lambda: group.store.revision == 3)
        proxy.muted = False
        proxy.cut()
        with pytest.raises(OutcomeUnknown, match="may or may not have been applied"):
            await answer
    assert group.store.revision == 3


async def test_requests_continue_at_another_endpoint(stream: StreamServer) -> None:
    async with Proxy(stream.port) as closed:
        dead = closed.endpoint
    async with Client([dead, f"127.0.0.1:{stream.port}"], follow_leader=False) as client:
        assert (await client.put("a", "1")).revision == 2


async def test_broken_connections_lose_and_repeat_nothing(stream: StreamServer, group: FakeGroup) -> None:
    async with Proxy(stream.port) as proxy, Client([proxy.endpoint], follow_leader=False, timeout_s=20) as client:
        puts = asyncio.ensure_future(client.put_many(((f"k{n}", b"v") for n in range(2000)), outstanding=100))
        for step in range(1, 8):
            await until(lambda step=step: group.store.revision > step * 200)  # type: ignore[misc]
            proxy.cut()
        assert await puts == 2000
    found = group.store.range(Range(b"k", b"l"))
    assert {kv.version for kv in found.kvs} == {1}
    assert (group.store.key_count, group.store.revision) == (2000, 2001)


async def test_request_without_a_leader_is_unavailable(client: Client, group: FakeGroup) -> None:
    group.leading = False
    with pytest.raises(Unavailable, match="leader"):
        await client.put("a", "1", timeout_s=0.5)
    with pytest.raises(Unavailable, match="leader"):
        await client.range("a", timeout_s=0.5)
    assert group.store.revision == 1


async def test_request_is_executed_if_a_leader_is_found_in_time(client: Client, group: FakeGroup) -> None:
    group.leading = False
    answer = asyncio.ensure_future(client.put("a", "1"))
    await until(lambda: group.submitted > 1)
    group.leading = True
    assert (await answer).revision == 2


async def test_lost_majority_is_an_unknown_outcome_within_the_deadline(client: Client, group: FakeGroup) -> None:
    group.majority = False
    with pytest.raises(OutcomeUnknown):
        await client.put("a", "1", timeout_s=0.5)


async def test_requests_to_a_silent_node_end_at_their_deadline(stream: StreamServer) -> None:
    async with Proxy(stream.port) as proxy, Client([proxy.endpoint], timeout_s=0.4) as client:
        await client.status()
        proxy.muted = True
        with pytest.raises(Unavailable):
            await client.get("a")


async def test_refused_connection_is_unavailable_and_names_the_address(stream: StreamServer) -> None:
    async with Proxy(stream.port) as closed:
        dead = closed.endpoint
    async with Client([dead], timeout_s=0.3) as client:
        with pytest.raises(Unavailable, match=dead):
            await client.put("a", "1")


async def test_closed_client_ends_pending_requests(stream: StreamServer, group: FakeGroup) -> None:
    group.majority = False
    async with Client([f"127.0.0.1:{stream.port}"], follow_leader=False) as client:
        answer = asyncio.ensure_future(client.put("a", "1"))
        watch = client.watch("a")
        waiting = asyncio.ensure_future(anext(watch))
        await until(lambda: group.submitted == 1)
    with pytest.raises(OutcomeUnknown):
        await answer
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable, match="not open"):
        await client.put("a", "1")


async def test_window_keeps_every_result_that_may_be_requested_again(client: Client, group: FakeGroup) -> None:
    """The store remembers 4,096 results of a client: the newest request never runs further ahead of the oldest."""
    group.majority = False
    stuck = [asyncio.ensure_future(client.put(f"k{n}", b"")) for n in range(5000)]
    await until(lambda: group.submitted == 2048)
    for put in stuck:
        put.cancel()
    await asyncio.gather(*stuck, return_exceptions=True)


# Watches.


async def test_watch_returns_every_change_in_order(client: Client) -> None:
    async with client.watch("k/", prefix=True, prev_kv=True) as watch:
        await client.put("k/a", "1", timeout_s=1)
        await client.put("other", "1")
        await client.txn([], [Put(b"k/a", b"2"), Put(b"k/b", b"1")])
        await client.delete("k/a")
        seen = await take(watch, 3)
    assert [batch.revision for batch in seen] == [2, 4, 5]
    assert [[event.kv.key for event in batch.events] for batch in seen] == [[b"k/a"], [b"k/a", b"k/b"], [b"k/a"]]
    last = seen[-1].events[0]
    assert last.delete
    assert last.prev_kv is not None
    assert last.prev_kv.value == b"2"


async def test_watch_can_begin_in_the_past(client: Client) -> None:
    for number in range(5):
        await client.put("a", str(number))
    async with client.watch("a", start_revision=4) as watch:
        assert [batch.revision for batch in await take(watch, 3)] == [4, 5, 6]
        assert watch.next_revision == 7


async def test_watch_omits_filtered_events(client: Client) -> None:
    async with client.watch("a", filters=["put"]) as watch:
        await client.put("a", "1")
        await client.delete("a")
        (seen,) = await take(watch, 1)
    assert (seen.revision, seen.events[0].delete) == (3, True)


async def test_watch_below_the_oldest_revision_is_refused_with_it(client: Client) -> None:
    for number in range(4):
        await client.put("a", str(number))
    await client.compact(4)
    with pytest.raises(Compacted) as refused:
        await take(client.watch("a", start_revision=2), 1)
    assert refused.value.minimal_revision == 4


async def test_watch_continues_over_broken_connections_without_gap_or_repetition(
    stream: StreamServer, client: Client
) -> None:
    """Scenarios etcd #17529 and #17247, on the side of the client."""
    async with Proxy(stream.port) as proxy, Client([proxy.endpoint], follow_leader=False) as watcher:
        async with watcher.watch("a") as watch:
            seen: list[int] = []
            await watcher.put("b", "1")
            for _ in range(10):
                for _ in range(20):
                    await client.put("a", "x")
                seen += [batch.revision for batch in await take(watch, 15)]
                proxy.cut()
            seen += [batch.revision for batch in await take(watch, 50)]
        assert proxy.connections > 5
    assert seen == list(range(3, 203))


async def test_progress_confirms_that_nothing_was_missed(client: Client) -> None:
    async with client.watch("a", progress_s=0.05) as watch:
        await client.put("b", "1")
        found = RevisionEvents(0, ())
        async with asyncio.timeout(5):
            while found.revision < 2:
                found = await anext(watch)
    assert (found.revision, found.events) == (2, ())


async def test_slow_consumer_loses_nothing_and_delays_no_other_request(client: Client) -> None:
    """Scenario etcd #17529: a watch that is not read for a while, and requests on the same connection."""
    value = b"v" * 50_000
    async with client.watch("a") as slow:
        await client.put("a", "first")
        for _ in range(300):
            await client.put("a", value)
        assert (await client.get("a")) is not None
        seen = await take(slow, 301)
    assert [batch.revision for batch in seen] == list(range(2, 303))


# The cluster.


async def test_status_and_members_show_the_state_of_the_node(client: Client) -> None:
    await client.put("a", "1")
    status = await client.status()
    assert (status["cluster"], status["member"], status["leader"], status["revision"]) == ("demo", "n1", "n1", 2)
    assert [member["id"] for member in await client.members()] == ["n1"]
    assert (await client.digest()).revision == 2
    assert await client.transfer() == "n1"


async def test_members_are_added_and_removed(client: Client) -> None:
    await client.member_add("n2", "abc", {"peer": "127.0.0.1:7502"})
    assert [member["id"] for member in await client.members()] == ["n1", "n2"]
    await client.member_promote("n2")
    await client.member_remove("n2")
    assert [member["id"] for member in await client.members()] == ["n1"]
