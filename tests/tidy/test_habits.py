"""Habits that a machine can check: no leftovers, no vanishing asserts, no paths of a developer's machine, no giants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .conftest import Source

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 70
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
SKIPPED = re.compile(r"pytest\.(mark\.)?(skip|skipif|xfail|importorskip)\b")
NO_SUBJECT = re.compile(r"\bdef test_(what|it|they|who|whoever|nobody|somebody|there|this|that)_")
MACHINE_PATH = re.compile(r"(?<![\w.~$}*-])/(home|root|Users|work)/\w")


def functions_of(source: Source) -> Iterator[tuple[str, int]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{source.path}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def lines_with(pattern: re.Pattern[str], texts: dict[str, str]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts.items()
        if not path.startswith("tests/tidy/")
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_nothing_is_left_for_later(texts: dict[str, str]) -> None:
    code = {path: text for path, text in texts.items() if not path.endswith(".md")}
    assert lines_with(LEFTOVER, code) == []


def test_no_test_is_skipped_by_a_mark(texts: dict[str, str]) -> None:
    """Tests may skip themselves, loudly and not in CI, if they need etcd, PostgreSQL, a client of etcd or Java."""
    needy = ("tests/differential/", "tests/clients/requirement.py", "tests/pipeline/conftest.py")
    code = {path: text for path, text in texts.items() if not path.startswith(needy)}
    assert lines_with(SKIPPED, code) == []


def test_test_names_begin_with_their_subject(texts: dict[str, str]) -> None:
    assert lines_with(NO_SUBJECT, texts) == []
    assert NO_SUBJECT.search("async def test_it_is_read_as_it_was_written() -> None:")


def test_no_path_of_somebodys_machine(texts: dict[str, str]) -> None:
    assert lines_with(MACHINE_PATH, texts) == []


def test_production_checks_raise_and_never_assert(production: list[Source]) -> None:
    found = [
        f"{source.path}:{node.lineno}"
        for source in production
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assert)
    ]
    assert not found, f"python -O removes these: {found}"


WIRED_FROM_OUTSIDE = {
    "raftgroup/library.py": "replaces parts of PySyncObj",
    "vault/incoming_difference.py": "the mark of the vault is its state",
    "palisade/segments/": "not linear yet",
}


def test_constructors_set_no_attribute_of_another_object(production: list[Source]) -> None:
    """Wiring is linear: an object gets what it needs when it is constructed."""
    found = {
        f"{source.path}:{assigned.lineno}"
        for source in production
        if not source.path.startswith(tuple(WIRED_FROM_OUTSIDE))
        for function in ast.walk(source.tree)
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        for assigned in ast.walk(function)
        if isinstance(assigned, ast.Assign | ast.AnnAssign)
        for node in ast.walk(assigned)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not is_self(node.value)
    }
    assert not found, found


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def test_tests_of_logic_do_not_sleep(everything: list[Source]) -> None:
    found = [
        source.path
        for source in everything
        if source.path.startswith("tests/")
        and not source.path.startswith(("tests/e2e/", "tests/tidy/", "tests/support/"))
        and "time.sleep(" in source.text
    ]
    assert not found


def test_every_module_says_what_it_is(production: list[Source]) -> None:
    assert [source.path for source in production if not ast.get_docstring(source.tree)] == []


def test_no_file_and_no_function_is_a_giant(everything: list[Source]) -> None:
    files = {source.path: source.text.count("\n") for source in everything}
    giants = {path: lines for path, lines in files.items() if lines > FILE_LINES_MAX}
    giants |= {
        name: lines for source in everything for name, lines in functions_of(source) if lines > FUNCTION_LINES_MAX
    }
    assert not giants
