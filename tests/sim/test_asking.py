"""Generated requests are valid, and of every kind."""

from __future__ import annotations

from palisade.metastore.limits import Limits
from palisade.metastore.requests import CompareTarget, Put, Range, Txn
from palisade.metastore.results import KeyValue, PutResult, RangeResult
from palisade.metastore.validation import check_request
from tests.sim.asking import Asking
from tests.sim.coverage.groups import PARTS, parts_of
from tests.sim.kv_spans import spans_of
from tests.sim.seen import Ok
from tests.sim.world import Settings, World

ROW = KeyValue(b"s/a", b"1", 2, 9, 3, 0)


def asking() -> Asking:
    world = World(1, Settings())
    return Asking(world.chance, lambda: world.revision)


def test_generated_requests_are_valid_and_cover_every_part() -> None:
    clients = asking()
    requests = [clients.anything() for _ in range(3000)]
    for request in requests:
        check_request(request, Limits())
    assert {part for request in requests for part in parts_of(request)} == set(PARTS)
    compares = [each for request in requests if isinstance(request, Txn) for each in request.compare]
    assert {each.target for each in compares} == set(CompareTarget)


def test_nested_transactions_do_not_mix_strict_and_other_keys() -> None:
    """The checker of strict keys examines a nested one as a whole, or not at all."""
    clients = asking()
    for request in (clients.transaction() for _ in range(3000)):
        nested = [step for step in (*request.success, *request.failure) if isinstance(step, Txn)]
        for each in nested:
            assert len({start.partition(b"/")[0] for start, _ in spans_of(each)}) == 1


def test_swap_compares_with_the_last_reported_value() -> None:
    clients = asking()
    clients.observe(Range(b"s/a"), Ok(RangeResult(9, (ROW,), False, 1)))
    compares = [clients._swap().compare[0] for _ in range(50)]
    assert {each.operand for each in compares if each.key == b"s/a"} == {9, b"1"}
    clients.observe(Range(b"s/a"), Ok(RangeResult(10, (), False, 0)))
    assert 0 in {clients._swap().compare[0].operand for _ in range(50)}
    clients.observe(Put(b"s/b", b"2"), Ok(PutResult(11)))
