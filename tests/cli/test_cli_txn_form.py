"""Both written forms of a transaction have the same meaning; errors name their place."""

from __future__ import annotations

import importlib
import io
import json
import random
import shlex
import time
from collections.abc import Callable
from typing import Any

import pytest

from palisade.cli.ndjson import LineError, read_entries
from palisade.cli.txn import bounded, lines_of, parse_txn
from palisade.cli.txn_form import FormError
from palisade.cli.txn_words import words_of
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


def words_or_error(split: Callable[[str], list[str]], line: str) -> list[str] | str:
    try:
        return split(line)
    except ValueError:
        return "error"


def test_words_are_those_of_a_shell() -> None:
    rng = random.Random(7)
    for _ in range(20_000):
        line = "".join(rng.choices("ab \t#'\"\\\\\u00a0", k=rng.randrange(12)))
        expected = words_or_error(lambda text: shlex.split(text, comments=True), line)
        assert words_or_error(words_of, line) == expected, line


@pytest.mark.parametrize("quote", ["", "'", '"', '"\\"', "\\"])
def test_time_of_a_long_line_does_not_grow_with_its_square(quote: str) -> None:
    """A value of 500 KB took 4 s, and a bad line of 5 MB more than 35 s."""
    took = []
    for size in (200_000, 1_600_000):
        begun = time.process_time()
        parse_txn(f"success\n put /a {quote}{'x' * size}{quote[:1].strip(chr(92))}")
        took.append(time.process_time() - begun)
    assert took[1] < 1 + 24 * took[0], "8 times the length, with a margin"


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        f"success\n {LONG}",
        f"success\n put /a '{LONG}",
        f"compare\n {LONG} /a = 0",
        f"compare\n version /a {LONG} 0",
        f"compare\n version /a = {LONG}",
        f"compare\n version /a = 0x{'f' * 100_000}",
        f"success\n put /a b lease={LONG}",
        json.dumps({LONG: []}),
        json.dumps({"success": [{LONG: {}}]}),
        json.dumps({"compare": [{"key": "a", "target": LONG, "operand": 0}]}),
        json.dumps({"compare": [{"key": "a", "target": "mod", "operand": [LONG]}]}),
    ],
)
def test_error_of_a_long_text_is_short(text: str) -> None:
    """The error repeated the whole line."""
    with pytest.raises(FormError) as refusal:
        parse_txn(text)
    assert len(str(refusal.value)) < 300


def test_error_of_a_long_field_of_an_entry_is_short() -> None:
    with pytest.raises(LineError) as refusal:
        read_entries([json.dumps({LONG: 1}).encode()])
    assert len(str(refusal.value)) < 300


def test_file_that_no_cluster_accepts_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = importlib.import_module("palisade.cli.txn")
    monkeypatch.setattr(module, "CHARACTERS_MAX", 10)
    assert bounded(io.StringIO("x" * 10)) == "x" * 10
    file = io.StringIO("x" * 20)
    with pytest.raises(FormError, match="has more than 10 characters"):
        bounded(file)
    assert file.tell() == 11
