"""The plain put path produces the same bytes as the general path."""

from __future__ import annotations

import random
from typing import Any

import pytest

from palisade.metastore.command_codec import PLAIN_PUT, PUT_SERIES, decode_result, encode_command, pack
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.ordered_map import Table
from palisade.metastore.put_series import encode_series, is_series
from palisade.metastore.requests import Command, DeleteRange, LeaseGrant, Put, RequestId
from palisade.metastore.state_machine import MetaStore
from tests.support.meta_driver import Driver


def commands() -> list[bytes]:
    dice = random.Random(11)
    found = [encode_command(LeaseGrant(60_000, 7))]
    for sequence in range(1, 400):
        key = b"k%d" % dice.randrange(30)
        value = dice.randbytes(dice.randrange(20))
        request_id = RequestId(f"c{dice.randrange(3)}", sequence) if dice.random() < 0.5 else None
        if dice.random() < 0.1:
            found.append(encode_command(DeleteRange(key), request_id))
        else:
            found.append(encode_command(Put(key, value, lease=7 if dice.random() < 0.1 else 0), request_id))
        if request_id and dice.random() < 0.1:
            found.append(found[-1])
    return found


class NoShortWay:
    def run(self, _commands: object, first: int, _answers: object) -> int:
        return first


def without_blocks(driver: Driver) -> dict[Table, dict[bytes, bytes]]:
    """The split into blocks depends on the path."""
    return {table: rows for table, rows in driver.contents().items() if table is not Table.REVISION}


def events(driver: Driver) -> list[tuple[int, list[tuple[bytes, bytes]], bytes | None]]:
    store = driver.store
    found = store._history.revisions(store.minimal_revision, store.revision)
    return [(revision, list(rows), store.chain_at(revision)) for revision, rows in found]


def test_plain_put_path_gives_the_same_tables_results_and_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = Driver(), Driver()
    monkeypatch.setattr(long.store, "_plain_puts", NoShortWay())
    for start in range(0, 400, 7):
        batch = commands()[start : start + 7]
        assert short.batch(*batch) == long.batch(*batch)
    assert without_blocks(short) == without_blocks(long)
    assert events(short) == events(long)
    assert short.store.digest() == long.store.digest()


def test_plain_put_path_is_taken_by_most_puts(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    long_way: list[object] = []
    original = MetaStore._execute

    def counted(self: MetaStore, request: Command) -> Any:
        long_way.append(request)
        return original(self, request)

    monkeypatch.setattr(MetaStore, "_execute", counted)
    driver.do(Put(b"a"), RequestId("c", 1))
    driver.batch(*(encode_command(Put(b"a"), RequestId("c", sequence)) for sequence in range(2, 100)))
    driver.batch(*(encode_command(Put(b"b")) for _ in range(100)))
    assert len(long_way) == 1


@pytest.mark.parametrize("as_series", [False, True])
def test_plain_put_path_looks_up_puts_with_leases_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, as_series: bool
) -> None:
    """A batch that ended at each of them looked up all later puts again: 4,096 puts took 2.8 s in one turn of the loop
    (R5).
    """
    driver.do(LeaseGrant(60_000, 7))
    keys = [b"%d" % number for number in range(500)]
    driver.batch(*(encode_command(Put(key, b"1", lease=7)) for key in keys))
    looked_up: list[int] = []
    original = MemoryMap.get_many

    def counted(tables: MemoryMap, table: Table, wanted: list[bytes]) -> dict[bytes, bytes]:
        looked_up.append(len(wanted))
        return original(tables, table, wanted)

    monkeypatch.setattr(MemoryMap, "get_many", counted)
    if as_series:
        driver.batch(encode_series(None, [part for key in keys for part in (key, b"2")]))
    else:
        driver.batch(*(encode_command(Put(key, b"2")) for key in keys))
    assert sum(looked_up) == len(keys)
    assert driver.store.lease_info(7).keys == ()
    assert driver.get(b"0").lease == 0


@pytest.mark.parametrize("client", [None, 7, b"c", ["c"]])
def test_put_with_an_invalid_request_id_is_refused_without_stopping_the_node(driver: Driver, client: object) -> None:
    """An entry in the log must be refused by every replica; an exception would stop every replica at each start."""
    first = pack((PLAIN_PUT, [client, 1], b"k", b"v"))
    refused = driver.batch(first)[0]
    with pytest.raises(InvalidRequest):
        decode_result(refused)
    assert driver.store.revision == 1


@pytest.mark.parametrize("operation", [True, 1.0])
def test_operation_number_of_another_type_is_not_a_plain_put(driver: Driver, operation: object) -> None:
    """The plain put path took it for a put, and its retry on the general path was reported as not executed (M3)."""
    driver.do(Put(b"k"), RequestId("c", 1))
    command = pack((operation, ["c", 2], b"k", b"v"))
    first, again = driver.batch(command), driver.batch(command)
    assert first == again
    with pytest.raises(InvalidRequest):
        decode_result(first[0])
    assert driver.store.revision == 2


def test_operation_number_of_another_type_is_not_a_series() -> None:
    assert is_series([PUT_SERIES, None, [b"k", b"v"]])
    assert not is_series([float(PUT_SERIES), None, [b"k", b"v"]])
