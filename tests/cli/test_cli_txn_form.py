"""Both written forms of a transaction have the same meaning; errors name their place."""

from __future__ import annotations

import json

import pytest

from palisade.cli.txn import lines_of, parse_txn
from palisade.cli.txn_form import FormError
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from palisade.metastore.results import KeyValue, PutResult, RangeResult, TxnResult

TEXT = """
# leader election
compare
    version /leader = 0
    value /mode != 'very fast'
success
    put /leader n1
    put "/a b" "" lease=0x4d
    delete-prefix /old/
failure
    get /leader
    get-prefix /nodes/
    delete /x
"""
FORM = {
    "compare": [
        {"target": "version", "key": "/leader", "operand": 0},
        {"target": "value", "key_base64": "L21vZGU=", "relation": "!=", "operand": "very fast"},
    ],
    "success": [
        {"put": {"key": "/leader", "value": "n1"}},
        {"put": {"key": "/a b", "value_base64": "", "lease": "77"}},
        {"delete": {"key": "/old/", "prefix": True}},
    ],
    "failure": [
        {"range": {"key": "/leader"}},
        {"range": {"key": "/nodes/", "prefix": True}},
        {"delete": {"key": "/x"}},
    ],
}
MEANING = Txn(
    compare=(
        Compare(b"/leader", CompareTarget.VERSION, CompareResult.EQUAL, 0),
        Compare(b"/mode", CompareTarget.VALUE, CompareResult.NOT_EQUAL, b"very fast"),
    ),
    success=(Put(b"/leader", b"n1"), Put(b"/a b", b"", lease=77), DeleteRange(b"/old/", b"/old0")),
    failure=(Range(b"/leader"), Range(b"/nodes/", b"/nodes0"), DeleteRange(b"/x")),
)


def test_text_and_json_forms_have_the_same_meaning() -> None:
    assert parse_txn(TEXT) == MEANING
    assert parse_txn(json.dumps(FORM)) == MEANING


def test_then_and_else_are_old_names_of_the_branches() -> None:
    old = {"then": "success", "else": "failure"}
    assert parse_txn(TEXT.replace("\nsuccess\n", "\nthen\n").replace("\nfailure\n", "\nelse\n")) == MEANING
    assert (
        parse_txn(json.dumps({{new: name for name, new in old.items()}.get(k, k): v for k, v in FORM.items()}))
        == MEANING
    )
    with pytest.raises(FormError, match="gives a branch twice"):
        parse_txn('{"then": [], "success": []}')


def test_json_form_allows_nested_transactions() -> None:
    assert parse_txn('{"success": [{"txn": {"success": [{"put": {"key": "a", "value": "b"}}]}}]}') == Txn(
        success=(Txn(success=(Put(b"a", b"b"),)),)
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the transaction is empty"),
        ("put /a b", "line 1: 'put /a b': begin with one of the words compare, success, failure"),
        ("compare\nversion /a 0", "line 2: 'version /a 0': a compare is TARGET KEY RELATION OPERAND"),
        ("compare\nage /a = 0", "'age' is not one of version, create, mod, value, lease"),
        ("compare\nversion /a == 0", "'==' is not one of = != > <"),
        ("compare\nversion /a = x", "operand 'x' is not a whole number"),
        ("success\nput /a", "an operation is put KEY VALUE"),
        ('success\nput /a "b', "line 2: 'put /a \"b': No closing quotation"),
        ("{", "this is not JSON: the JSON is incomplete at line 1, column 2"),
        ("{" + '"success": ' + "[" * 100_000, "this is not JSON: it is nested too deeply"),
        ('{"then-else": []}', "the transaction: unknown field 'then-else'"),
        ('{"success": {}}', "'success' is not a list"),
        ('{"success": [{"put": {"key": "a"}}]}', "success 1: give either 'value', as a text, or 'value_base64'"),
        ('{"success": [{"put": {"key": "a", "key_base64": "YQ==", "value": ""}}]}', "success 1: give either 'key'"),
        ('{"success": [{"put": {"key_base64": "!", "value": ""}}]}', "key_base64 is not base64"),
        ('{"success": [{"drop": {}}]}', "success 1: 'drop' is not one of put, delete, range, txn"),
        ('{"success": [{}]}', "success 1: is not one operation such as"),
        ('{"failure": [{"txn": {"success": [1]}}]}', "success 1: is not one operation"),
        (
            '{"compare": [{"key": "a", "target": "mod", "operand": true}]}',
            "compare 1: operand True is not a whole number",
        ),
        ('{"success": [{"range": {"key": "a", "prefix": 1}}]}', "'prefix' is true or false"),
    ],
)
def test_form_that_cannot_be_parsed_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(FormError) as refusal:
        parse_txn(text)
    assert says in str(refusal.value)


def test_output_has_the_branch_and_every_operation() -> None:
    kv = KeyValue(b"/leader", b"n2", 3, 3, 1, 0)
    result = TxnResult(7, False, (PutResult(7), RangeResult(7, (kv,), False, 1), TxnResult(7, True, ())))
    assert lines_of(result) == [
        "failure (a compare did not hold), revision 7",
        "    put",
        "    /leader\tn2",
        "    success (every compare held), revision 7",
    ]
