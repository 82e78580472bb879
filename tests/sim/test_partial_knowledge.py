"""Knowledge of keys (`kv_model`) against their exact state: what the store does is possible for any knowledge of it."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.metastore.errors import MetastoreError
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from palisade.metastore.results import KeyValue
from tests.sim.kv_model import KeyValues, absent, present
from tests.sim.kv_spans import Resolved
from tests.sim.linearizability import Op
from tests.support.meta_model import Model
from tests.support.store_rules import Above, verdict

A, B, C = KEYS = (b"a", b"b", b"c")
LEASE = 7
FEW = st.integers(0, 6)
KEY, VALUE, BOOLEAN = st.sampled_from(KEYS), st.sampled_from((b"", b"0", b"1")), st.booleans()
END, LEASES = st.sampled_from((b"", b"", b"c", b"\0")), st.sampled_from((0, LEASE))
COMPARE = st.one_of(
    st.builds(Compare, KEY, st.just(CompareTarget.VALUE), st.sampled_from(CompareResult), VALUE, END),
    st.builds(
        Compare,
        KEY,
        st.sampled_from([target for target in CompareTarget if target is not CompareTarget.VALUE]),
        st.sampled_from(CompareResult),
        st.one_of(FEW, LEASES),
        END,
    ),
)
OPERATION: Any = st.one_of(
    st.builds(Put, KEY, VALUE, LEASES, BOOLEAN, BOOLEAN, BOOLEAN),
    st.builds(DeleteRange, KEY, END, BOOLEAN),
    st.builds(Range, KEY, END, st.integers(0, 2), keys_only=BOOLEAN, count_only=BOOLEAN),
)


def transactions(part: Any) -> Any:
    branch = st.lists(part, max_size=3).map(tuple)
    return st.builds(Txn, st.lists(COMPARE, max_size=2).map(tuple), branch, branch)


REQUEST = st.one_of(OPERATION, transactions(OPERATION), transactions(st.one_of(OPERATION, transactions(OPERATION))))


def knowledge(model: Model, key: bytes, missing: int) -> KeyValue:
    """Of a key of the model. `missing`: how far a bound is below its mod revision."""
    revisions = [number for number, events in enumerate(model.events) for event in events if event.kv.key == key]
    latest = revisions[-1] if revisions else 0
    kv = model.states[-1].get(key)
    if kv is None:
        return absent(key, max(0, latest - missing))
    return present(key, kv.value, Above(max(0, latest - missing)) if missing else latest, kv.lease)


def describes(known: KeyValue, kv: KeyValue | None) -> bool:
    if kv is None or not known.version:
        return kv is None and not known.version
    mod: Any = known.mod_revision
    is_right = kv.mod_revision > mod.floor if isinstance(mod, Above) else kv.mod_revision == mod
    return is_right and (known.key, known.value, known.lease) == (kv.key, kv.value, kv.lease)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.one_of(st.builds(Put, KEY, VALUE, LEASES), st.builds(DeleteRange, KEY)), max_size=5),
    REQUEST,
    st.tuples(*[st.sampled_from((0, 0, 1, 2))] * len(KEYS)),
    st.sampled_from(("shown", "resolved", "lost")),
)
def test_outcome_in_the_store_is_possible_for_any_knowledge_of_it(
    before: list[Any], request: Any, missing: tuple[int, ...], response: str
) -> None:
    model = Model()
    model.leases = {LEASE: (0, 0)}
    for each in before:
        model.outcome(each)
    state = tuple(knowledge(model, key, gap) for key, gap in zip(KEYS, missing, strict=True))
    result = model.outcome(request)
    if isinstance(result, MetastoreError):
        return
    answered = {"shown": result, "resolved": Resolved(result.revision), "lost": None}[response]
    states = list(KeyValues(KEYS).step(state, Op(0, 1, request, answered)))
    now = [model.states[-1].get(key) for key in KEYS]
    assert any(all(map(describes, after, now)) for after in states), states


def test_compare_is_decided_if_all_possible_numbers_agree() -> None:
    def judged(mod: Any, operand: int, result: CompareResult) -> bool | None:
        compare = Compare(A, CompareTarget.MOD, result, operand)
        return verdict({A: KeyValue(A, b"", 1, mod, 1, 0)}, compare)

    for floor, operand, result in product(range(4), range(8), CompareResult):
        verdicts = {judged(number, operand, result) for number in range(floor + 1, 20)}
        assert judged(Above(floor), operand, result) is (verdicts.pop() if len(verdicts) == 1 else None)


def test_compare_of_versions_is_undecided_above_zero() -> None:
    state = {A: present(A, b"", 5)}
    for target in (CompareTarget.VERSION, CompareTarget.CREATE):
        equal = [verdict(state, Compare(A, target, CompareResult.EQUAL, operand)) for operand in (0, 1)]
        assert equal == [False, None]
