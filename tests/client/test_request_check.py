"""A request that cannot be sent is refused at once, and the requests beside it are executed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from palisade.api.stream.server import StreamServer
from palisade.client import Client
from palisade.client.operations import Compare, Get, Put, Txn
from palisade.client.sync_client import SyncClient
from palisade.metastore.command_codec import encode_command
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.requests import Compact, CompareResult, CompareTarget
from tests.support.fake_group import FakeGroup

HUGE = 10**30
Ask = Callable[[Any, Any], Any]
Wrong = Callable[[Any], Any]

NUMBERS: dict[str, Ask] = {
    "get": lambda client, number: client.get("a", revision=number),
    "range revision": lambda client, number: client.range("a", revision=number),
    "range limit": lambda client, number: client.range("a", limit=number),
    "range bound": lambda client, number: client.range("a", min_mod_revision=number),
    "put": lambda client, number: client.put("a", "1", lease=number),
    "compact": lambda client, number: client.compact(number),
    "watch": lambda client, number: client.watch("a", start_revision=number),
    "put in a transaction": lambda client, number: client.txn([], [Put("a", "1", lease=number)]),
    "get in a transaction": lambda client, number: client.txn([], [Get("a", limit=number)]),
    "nested": lambda client, number: client.txn([], [Txn([], [Get("a", limit=number)])]),
    "grant": lambda client, number: client.lease_grant(10, number),
    "keep-alive": lambda client, number: client.lease_keep_alive(number),
    "revoke": lambda client, number: client.lease_revoke(number),
    "info": lambda client, number: client.lease_info(number),
}


async def result_of(asked: Any) -> Any:
    return await asked if asyncio.iscoroutine(asked) else asked


@pytest.mark.parametrize("ask", NUMBERS.values(), ids=list(NUMBERS))
async def test_number_that_no_node_accepts_is_refused_at_once(client: Client, ask: Ask) -> None:
    """It ended after the deadline as `Unavailable`, with a traceback of the event loop; -1 was taken for 0."""
    for number, text in ((HUGE, "1000000000000000000000000000000 does not fit in 64 bits"), (-1, "-1 is negative")):
        with pytest.raises(InvalidRequest, match=text):
            async with asyncio.timeout(1):
                await result_of(ask(client, number))


@pytest.mark.parametrize("ask", NUMBERS.values(), ids=list(NUMBERS))
async def test_value_that_is_no_number_is_refused(client: Client, ask: Ask) -> None:
    for wrong in ("7", 1.5, object()):
        with pytest.raises(TypeError, match=f"must be a whole number, not {type(wrong).__name__}"):
            await result_of(ask(client, wrong))


async def test_operand_of_a_compare_may_be_negative_but_has_64_bits(client: Client) -> None:
    def compared(operand: int) -> Any:
        return client.txn([Compare("a", CompareTarget.LEASE, CompareResult.EQUAL, operand)])

    assert not (await compared(-1)).succeeded
    for number in (HUGE, -HUGE):
        with pytest.raises(InvalidRequest, match=r"the operand of LEASE .* does not fit in 64 bits"):
            await compared(number)


async def test_number_of_thousands_of_digits_is_refused_by_its_size(client: Client) -> None:
    """Python does not write out a number of more than 4300 digits."""
    with pytest.raises(InvalidRequest, match="revision of 33220 bits does not fit"):
        await client.get("a", revision=10**10_000)


CALLS: dict[str, Ask] = {
    "scan": lambda client, wrong: client.scan_counts(b"a", b"b", wrong),
    "pin": lambda client, wrong: client.pin(b"a", b"b", "p", wrong, 1000),
    "catalog": lambda client, wrong: client.catalog_do("create-database", {"database": wrong}, procedure="p"),
    "procedures": lambda client, wrong: client.procedures(limit=wrong),
    "segments": lambda client, wrong: client.segments_list(wrong),
}


@pytest.mark.parametrize("ask", CALLS.values(), ids=list(CALLS))
async def test_argument_of_a_call_that_cannot_be_encoded_is_refused(client: Client, ask: Ask) -> None:
    with pytest.raises(InvalidRequest, match="a number does not fit in 64 bits"):
        await ask(client, HUGE)
    with pytest.raises(TypeError, match="cannot be sent"):
        await ask(client, object())


async def test_refused_request_leaves_those_of_the_same_turn_alone(client: Client, group: FakeGroup) -> None:
    await client.ping()
    puts = [asyncio.ensure_future(client.put(f"k/{number}", "1")) for number in range(4)]
    wrong = [asyncio.ensure_future(result_of(ask(client, HUGE))) for ask in list(NUMBERS.values())[:4]]
    reads = [asyncio.ensure_future(client.get("a")) for _ in range(4)]
    async with asyncio.timeout(1):
        assert len(await asyncio.gather(*puts, *reads)) == 8
        refused = await asyncio.gather(*wrong, return_exceptions=True)
    assert all(isinstance(error, InvalidRequest) for error in refused)
    assert group.store.key_count == 4


async def test_request_from_before_the_connection_is_refused_too(stream: StreamServer) -> None:
    """A call that could not be encoded ended the task that connects: every later request waited for its deadline."""
    async with Client([f"127.0.0.1:{stream.port}"], follow_leader=False, timeout_s=3) as client:
        with pytest.raises(InvalidRequest):
            await client.procedures(limit=HUGE)
        assert (await client.put("a", "1")).revision > 1


@pytest.mark.parametrize("progress_s", [10**30, float("inf"), float("nan"), -1])
async def test_interval_out_of_range_is_refused(client: Client, progress_s: float) -> None:
    with pytest.raises(ValueError, match=r"progress_s .* is out of range; give 0 to 31536000 seconds"):
        client.watch("a", progress_s=progress_s)


@pytest.mark.parametrize("timeout_s", [1e30, float("inf"), -1])
def test_timeout_out_of_range_is_refused(timeout_s: float) -> None:
    """The client could not greet a node, and every request waited for this time."""
    with pytest.raises(ValueError, match=r"timeout_s .* is out of range"):
        Client("127.0.0.1:9", timeout_s=timeout_s)
    with pytest.raises(TypeError, match="timeout_s must be a number of seconds, not str"):
        Client("127.0.0.1:9", timeout_s="5")  # type: ignore[arg-type]


NO_TIME = "timeout_s must be a number of seconds, not str"
WRONG: dict[str, tuple[Wrong, str]] = {
    "compare": (lambda client: client.txn("x"), "compare must be a list of Compare, not str"),
    "single compare": (lambda client: client.txn(Compare.exists("a")), "compare must be a list of Compare, not Comp"),
    "compares": (lambda client: client.txn(["x"]), "a condition must be a Compare, not str"),
    "success": (lambda client: client.txn([], "x"), "success must be a list of operations, not str"),
    "single put": (lambda client: client.txn([], Put("a")), "success must be a list of operations, not Put"),
    "failure": (lambda client: client.txn([], [], 5), "failure must be a list of operations, not int"),
    "nested": (lambda client: client.txn([], [Txn([], cast(Any, 5))]), "success must be a list of operations"),
    "target": (
        lambda client: client.txn([Compare("a", cast(Any, "version"), CompareResult.EQUAL, 0)]),
        "the target of a compare must be a CompareTarget, not str",
    ),
    "operand": (
        lambda client: Compare("a", CompareTarget.MOD, CompareResult.EQUAL, cast(Any, 1.5)),
        "an operand must be a whole number, bytes or text, not float",
    ),
    "order": (lambda client: client.range("a", sort_order="ascend"), "sort_order must be a SortOrder, not str"),
    "value": (lambda client: client.put("a", 5), "a key or value must be bytes or text, not int"),
    "key": (lambda client: client.get(5), "a key or value must be bytes or text, not int"),
    "prefix": (lambda client: client.range(5, prefix=True), "a key or value must be bytes or text, not int"),
    "three": (lambda client: client.put_many([("a", "b", "c")]), "a pair .key, value., not .'a', 'b', 'c'"),
    "number": (lambda client: client.put_many([5]), "every item must be a pair .key, value., not 5"),
    "two letters": (lambda client: client.put_many(["ab"]), "every item must be a pair .key, value., not 'ab'"),
    "mapping": (lambda client: client.put_many({"ab": "c"}), "items must be a list of pairs .*, not dict"),
    "pairs": (lambda client: client.put_many(5), "items must be a list of pairs .key, value., not int"),
    "lease": (lambda client: client.lease("x"), "the time of a lease is a number of seconds, not str"),
    "grant": (lambda client: client.lease_grant("x"), "the time of a lease is a number of seconds, not str"),
    "lock": (lambda client: client.lock("/l", ttl_s="x"), "the time of a lease is a number of seconds, not str"),
    "put in time": (lambda client: client.put("a", "1", timeout_s="x"), NO_TIME),
    "put with a lease in time": (lambda client: client.put("a", "1", lease=1, timeout_s="x"), NO_TIME),
    "range in time": (lambda client: client.range("a", timeout_s="x"), NO_TIME),
    "delete in time": (lambda client: client.delete("a", timeout_s="x"), NO_TIME),
    "transaction in time": (lambda client: client.txn([], [], timeout_s="x"), NO_TIME),
    "lock in time": (lambda client: client.lock("/l", timeout_s="x"), NO_TIME),
    "campaign in time": (lambda client: client.campaign("/l", "a", timeout_s="x"), NO_TIME),
    "rows in time": (lambda client: client.realtime("a", "", "", {}, timeout_s="x"), NO_TIME),
    "filter": (lambda client: client.watch("a", filters="put"), "filters must be a list of names, not str"),
    "filters": (lambda client: client.watch("a", filters=[5]), "filters must be names, put or delete, not int"),
    "progress": (lambda client: client.watch("a", progress_s="1"), "progress_s must be a number of seconds, not str"),
}


@pytest.mark.parametrize(("ask", "text"), WRONG.values(), ids=list(WRONG))
async def test_wrong_type_is_named(client: Client, ask: Wrong, text: str) -> None:
    """`txn("x")` raised an AttributeError; a watch with a wrong filter closed the connection again and again, and
    `put_many` of a mapping split its keys into a key and a value."""
    with pytest.raises(TypeError, match=text):
        await result_of(ask(client))
    assert await client.get("a") is None


def test_sync_client_refuses_the_same(blocking: SyncClient) -> None:
    with pytest.raises(InvalidRequest, match="does not fit in 64 bits"):
        blocking.get("a", revision=HUGE)
    with pytest.raises(InvalidRequest, match="revision -1 is negative; give 0 or more"):
        blocking.get("a", revision=-1)
    with pytest.raises(TypeError, match="not dict"):
        blocking.put_many({"ab": "c"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="compare must be a list of Compare"):
        blocking.txn("x")  # type: ignore[arg-type]
    blocking.put("a", "1")


def test_command_with_a_number_of_more_than_64_bits_is_refused_by_the_codec() -> None:
    with pytest.raises(InvalidRequest, match="does not fit in 64 bits"):
        encode_command(Compact(HUGE))
    assert encode_command(Compact(5))
