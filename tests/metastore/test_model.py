"""The product against a naive model: the same random commands, the same results (M1 to M6)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from palisade.metastore.command_codec import decode_result
from palisade.metastore.errors import MetastoreError
from palisade.metastore.record import StoredRow
from palisade.metastore.requests import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    LeaseGrant,
    Put,
    Range,
    RequestId,
    Txn,
    WatchRequest,
)
from palisade.metastore.results import RevisionEvents
from palisade.metastore.revision_writer import RevisionWriter
from tests.support import store_rules
from tests.support.meta_driver import Driver
from tests.support.meta_model import Model
from tests.support.meta_workload import ENDS, KEYS, LEASES, Workload
from tests.support.store_rules import Execution, rows

SEEDS, COMMANDS = 60, 120
FILTERS = [frozenset(), frozenset({"put"}), frozenset({"delete"})]


def answer(action: Any) -> Any:
    try:
        return action()
    except MetastoreError as error:
        return error


def same(one: Any, other: Any) -> bool:
    """Equal results, or refusals of the same kind (with the same MM)."""
    if isinstance(one, MetastoreError) or isinstance(other, MetastoreError):
        return type(one) is type(other) and getattr(one, "minimal_revision", 0) == getattr(other, "minimal_revision", 0)
    return bool(one == other)


def compare_reads(driver: Driver, model: Model, load: Workload) -> None:
    store = driver.store
    assert (store.revision, store.minimal_revision) == (model.revision, model.minimal_revision)
    request = load.range()
    got, expected = answer(lambda: store.range(request)), answer(lambda: model.range(request))
    assert same(got, expected), f"{request}: {got} instead of {expected}"
    for revision in {model.minimal_revision, load.dice.randint(model.minimal_revision, model.revision)}:
        everything = Range(b"\0", b"\0", revision=revision)
        assert store.range(everything) == model.range(everything)
    for key in KEYS:
        assert store.get(key) == model.states[-1].get(key)
    assert store.key_count == len(model.states[-1])


def compare_leases(driver: Driver, model: Model) -> None:
    assert set(driver.store.leases()) == set(model.leases)
    for lease in LEASES:
        if lease in model.leases:
            info = driver.store.lease_info(lease)
            assert info.keys == model.keys_of(lease)
            assert info.ttl_ms == max(0, model.leases[lease][1] - model.clock_ms)


def compare_watch(driver: Driver, model: Model, dice: random.Random) -> None:
    start = dice.randint(model.minimal_revision, model.revision + 1)
    request = WatchRequest(
        dice.choice(KEYS), dice.choice(ENDS), start, dice.random() < 0.5, filters=dice.choice(FILTERS)
    )
    watcher = driver.store.watches.open(request)
    news = []
    while not watcher.sleeping:
        news += watcher.poll(revisions_max=dice.randrange(1, 9))
    assert news == model.watch(request)
    watcher.close()


def step(driver: Driver, model: Model, load: Workload) -> None:
    """One command to both."""
    driver.wait(load.dice.choice([0, 0, 1, 500, 2_000]))
    load.revision, load.clock_ms = driver.store.revision, driver.clock_ms
    request, request_id = load.command()
    if isinstance(request, LeaseGrant) and not request.id:
        request = LeaseGrant(request.ttl_ms, 1)
    model.clock_ms = driver.clock_ms + 1
    got = answer(lambda: driver.do(request, request_id))
    expected = model.do(request, request_id)
    assert same(got, expected), f"{request} {request_id}: {got!r} instead of {expected!r}"


def all_events(model: Model) -> list[RevisionEvents]:
    """The events of a watch on all keys since the start, independent of later compaction."""
    return [
        RevisionEvents(revision, tuple(event._replace(prev_kv=None) for event in events))
        for revision, events in enumerate(model.events)
        if events
    ]


def run(seed: int, commands: int) -> Driver:
    driver, model, load = Driver(), Model(), Workload(seed)
    live = driver.store.watches.open(WatchRequest(b"\0", b"\0"))
    seen: list[Any] = []
    for number in range(commands):
        step(driver, model, load)
        compare_reads(driver, model, load)
        seen += live.poll()
        if number % 5 == 0:
            compare_leases(driver, model)
            compare_watch(driver, model, load.dice)
        if load.dice.random() < 0.3:
            driver.store.collect(load.dice.randrange(1, 20))
    assert seen == all_events(model)
    driver.collect_all()
    compare_reads(driver, model, load)
    assert driver.findings() == []
    return driver


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_commands_give_the_results_of_the_model(seed: int) -> None:
    run(seed, COMMANDS)


@given(st.integers(1000, 10**9))
@settings(max_examples=40, deadline=None, phases=[Phase.generate])  # a smaller seed is no simpler
def test_other_seeds_give_the_results_of_the_model(seed: int) -> None:
    run(seed, 40)


def test_random_load_produces_every_kind_of_result() -> None:
    """A random test with refusals only would prove little."""
    kinds: dict[str, int] = {}
    for seed in range(15):
        driver, load = Driver(), Workload(seed)
        for _ in range(150):
            driver.wait(load.dice.choice([0, 500]))
            load.revision, load.clock_ms = driver.store.revision, driver.clock_ms
            wire = driver.wire(*load.command())
            name = type(answer(lambda wire=wire: decode_result(wire))).__name__
            kinds[name] = kinds.get(name, 0) + 1
    wanted = {
        "PutResult", "DeleteRangeResult", "TxnResult", "CompactResult", "LeaseResult", "PinResult", "DoneResult",
        "Compacted", "FutureRevision", "DuplicateKey", "KeyNotFound", "LeaseNotFound", "LeaseExists",
        "LeaseTtlInvalid", "ResultEvicted",
    }  # fmt: skip
    assert wanted <= set(kinds), wanted - set(kinds)
    assert kinds["TxnResult"] > 100


def run_seeds(seeds: range, commands: int) -> None:
    for seed in seeds:
        run(seed, commands)


def test_model_detects_a_wrong_version_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a recreated key continues with its old version."""
    original = RevisionWriter._write

    def wrong(self: RevisionWriter, row: StoredRow, *rest: Any) -> None:
        original(self, row._replace(version=max(1, row.version - 1)) if row.version else row, *rest)

    monkeypatch.setattr(RevisionWriter, "_write", wrong)
    with pytest.raises(AssertionError):
        run_seeds(range(10), 60)


def value_of_an_absent_key_holds(right: Any, state: Any, compare: Compare) -> Any:
    is_absent = compare.target is CompareTarget.VALUE and not rows(state, compare.key, compare.range_end)
    return is_absent or right(state, compare)


def delete_without_range_end(right: Any, execution: Execution, request: DeleteRange) -> Any:
    return right(execution, replace(request, range_end=b""))


def put_returns_the_new_row(right: Any, execution: Execution, request: Put) -> Any:
    result = right(execution, request)
    return replace(result, prev_kv=execution.now[request.key]) if request.prev_kv else result


def limit_is_one_more(right: Any, execution: Execution, request: Range) -> Any:
    return right(execution, replace(request, limit=request.limit + 1 if request.limit else 0))


def compare_of_a_range_holds_for_its_first_key(right: Any, state: Any, compare: Compare) -> Any:
    first = rows(state, compare.key, compare.range_end)[:1]
    return right({row.key: row for row in first}, compare)


@pytest.mark.parametrize(
    ("place", "rule", "wrong"),
    [
        (store_rules, "verdict", value_of_an_absent_key_holds),
        (store_rules, "verdict", compare_of_a_range_holds_for_its_first_key),
        (Execution, "_delete", delete_without_range_end),
        (Execution, "_put", put_returns_the_new_row),
        (Execution, "_read", limit_is_one_more),
    ],
)
def test_wrong_rule_of_the_model_differs_from_the_store(
    place: Any, rule: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of the linearizability search has the same rules: nothing but the store shows that they are right."""
    right = getattr(place, rule)
    monkeypatch.setattr(place, rule, lambda *given: wrong(right, *given))
    with pytest.raises(AssertionError, match="instead of"):
        run_seeds(range(SEEDS), COMMANDS)


def test_model_agrees_on_a_nested_compare_of_a_key_that_was_just_written() -> None:
    """It is of the state before the whole transaction. The random load hardly comes to it."""
    driver, model = Driver(), Model()
    absent = Compare(b"b", CompareTarget.VERSION, CompareResult.EQUAL, 0)
    nested = Txn((absent,), (Range(b"a"),), (Range(b"b"),))
    for first in (Put(b"b", b"1"), DeleteRange(b"b")):
        request = Txn((), (first, nested))
        model.clock_ms = driver.clock_ms + 1
        assert driver.do(request, None) == model.do(request, None)


def test_model_agrees_on_a_retried_put() -> None:
    driver, model = Driver(), Model()
    for sequence in (1, 2, 1, 2, 3):
        model.clock_ms = driver.clock_ms + 1
        request_id = RequestId("c", sequence)
        assert driver.do(Put(b"a", b"%d" % sequence), request_id) == model.do(Put(b"a", b"%d" % sequence), request_id)
