"""A series behaves like its puts: same events, digests and results, with any special case among them (M3)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.metastore.command_codec import PUT_SERIES, decode_result, encode_command, pack
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.limits import Limits
from palisade.metastore.plain_put_batch import PlainPutBatch
from palisade.metastore.put_series import (
    SERIES_PUTS_MAX,
    encode_series,
    is_series,
    keeps_limits,
    result_of,
    results_in,
    singles,
)
from palisade.metastore.request_results import SEQUENCE_MAX
from palisade.metastore.requests import DeleteRange, LeaseGrant, Put, RequestId
from tests.metastore.test_plain_put import events, without_blocks
from tests.support.meta_driver import Driver

SMALL = Limits(key_bytes_max=8, value_bytes_max=50, quota_bytes=8_000)


def fields_of(client: str | None, first: int, contents: list[Any]) -> list[Any]:
    return [PUT_SERIES, [client, first] if client is not None else None, contents]


def one_by_one(fields: list[Any]) -> list[bytes]:
    return [pack(single) for single in singles(fields)]


def both(one: Driver, other: Driver, fields: list[Any]) -> None:
    """The series to one, its puts to the other, each in one entry of the log."""
    found = one.batch(pack(fields))[0]
    assert [tuple(wire) for wire in results_in(found) or ()] == other.batch(*one_by_one(fields))


def assert_same(one: Driver, other: Driver) -> None:
    assert one.store.digest() == other.store.digest()
    assert without_blocks(one) == without_blocks(other)
    assert events(one) == events(other)


@pytest.mark.parametrize("seed", range(12))
def test_series_gives_the_results_of_its_puts(seed: int) -> None:
    dice = random.Random(seed)
    one, other = Driver(limits=SMALL), Driver(limits=SMALL)
    sequence = 1
    for _ in range(30):
        special = encode_command(
            dice.choice([LeaseGrant(60_000, 7), Put(b"k3", b"x", lease=7), DeleteRange(b"k1", b"k3")])
        )
        assert one.batch(special) == other.batch(special)
        contents: list[Any] = []
        for _ in range(dice.randrange(1, 30)):
            contents += [b"k%d" % dice.randrange(9), dice.randbytes(dice.randrange(20))]
        if dice.random() < 0.1:
            contents[0] = dice.choice([b"", b"much too long"])
        both(one, other, fields_of(dice.choice(["a", "b", None]), max(1, sequence - dice.randrange(4)), contents))
        sequence += len(contents) // 2
    assert one.store.alarm
    assert_same(one, other)


def test_retried_series_gets_the_first_results_and_writes_nothing(driver: Driver) -> None:
    command = encode_series(("c", 1), [b"a", b"1", b"b", b"2", b"a", b"3"])
    first = driver.batch(command)
    again = driver.batch(command)
    assert first == again
    assert [wire[1] for wire in results_in(again[0]) or ()] == [2, 3, 4]
    assert driver.store.revision == 4


def test_partly_retried_series_executes_the_rest(driver: Driver) -> None:
    """A reconnecting client splits its open puts into series anew."""
    driver.batch(encode_series(("c", 1), [b"a", b"1", b"b", b"2"]))
    wire = driver.batch(encode_series(("c", 2), [b"b", b"2", b"c", b"3"]))[0]
    assert [each[1] for each in results_in(wire) or ()] == [3, 4]
    assert driver.get(b"b").version == 1


def test_most_series_take_the_plain_put_path(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.do(Put(b"a"), RequestId("c", 1))
    done: list[int] = []
    original = PlainPutBatch.series
    monkeypatch.setattr(PlainPutBatch, "series", lambda self, fields: done.append(original(self, fields)) or done[-1])
    for start in range(2, 300, 100):
        driver.batch(encode_series(("c", start), [b"k", b"v"] * 100))
    assert done == [100, 100, 100]


def test_several_series_in_one_entry_get_their_own_results(driver: Driver) -> None:
    wires = driver.batch(
        encode_series(None, [b"a", b"1", b"b", b"1"]),
        encode_command(DeleteRange(b"a")),
        encode_series(None, [b"a", b"2", b"b", b"2"]),
    )
    assert [results_in(wire) for wire in wires] == [[(1, 2), (1, 3)], None, [(1, 5), (1, 6)]]


@pytest.mark.parametrize(
    "fields",
    [
        [PUT_SERIES],
        [PUT_SERIES, None, []],
        [PUT_SERIES, None, [b"a"]],
        [PUT_SERIES, None, b"ab"],
        [PUT_SERIES, ["c", 0], [b"a", b"b"]],
        [PUT_SERIES, ["c", SEQUENCE_MAX], [b"a", b"b"]],
        [PUT_SERIES, [5, 1], [b"a", b"b"]],
        [PUT_SERIES, ["c"], [b"a", b"b"]],
        [PUT_SERIES, None, [b"a", b"b"] * (SERIES_PUTS_MAX + 1)],
    ],
)
def test_malformed_series_is_refused_and_changes_nothing(driver: Driver, fields: list[Any]) -> None:
    assert not is_series(fields)
    with pytest.raises(InvalidRequest):
        decode_result(driver.batch(pack(fields))[0])
    assert driver.store.revision == 1


def test_wrong_type_within_a_series_refuses_only_that_put(driver: Driver) -> None:
    wire = driver.batch(pack([PUT_SERIES, None, [b"a", b"1", b"b", 5, b"c", b"3"]]))[0]
    assert [each[0] for each in results_in(wire) or ()] == [1, 0, 1]
    assert (driver.value(b"a"), driver.value(b"b"), driver.value(b"c")) == (b"1", None, b"3")


def test_series_has_the_limits_of_single_puts() -> None:
    assert keeps_limits(fields_of("c", 1, [b"k" * 8, b"v" * 50]), SMALL)
    for client, contents in [
        ("c", [b"k" * 9, b""]),
        ("c", [b"", b""]),
        ("c", [b"k", b"v" * 51]),
        ("c", [b"k", "text"]),
        ("", [b"k", b""]),
        ("\u00e9", [b"k", b""]),
    ]:
        assert not keeps_limits(fields_of(client, 1, contents), SMALL)


@given(st.lists(st.tuples(st.sampled_from([0, 1, 1, 1]), st.integers(2, 6)), min_size=1, max_size=8))
@settings(deadline=None)
def test_series_results_round_trip(wires: list[tuple[int, int]]) -> None:
    assert results_in(result_of(wires)) == wires


def test_checker_detects_sequences_that_do_not_increase(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every put of a series is remembered under the first sequence."""
    from palisade.metastore.request_results import RequestResults

    driver.do(Put(b"a"), RequestId("c", 1))
    monkeypatch.setattr(
        RequestResults,
        "remember_puts",
        lambda self, client, sequences, revisions: self.remember_put(client, sequences[0], revisions[-1]),
    )
    command = encode_series(("c", 2), [b"a", b"1", b"b", b"2"])
    assert driver.batch(command) != driver.batch(command)
