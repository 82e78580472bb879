"""The measures of the rooms see what they are for: circles, giants, long parameter lists."""

from __future__ import annotations

import ast
from pathlib import Path

from .rooms import broken_rules, first_circle, imports_of, long_parameter_lists, parse_all, repeated_classes, shares


def trees(**texts: str) -> dict[str, ast.Module]:
    return {name.replace("__", "."): ast.parse(text) for name, text in texts.items()}


def test_circle_is_found_through_a_type_checking_import() -> None:
    found = trees(
        p__a__x="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import y",
        p__b__y="def f():\n    import p.a.x",
    )
    graph = {name: imports_of(name, found) for name in found}
    assert first_circle(graph) in (["p.a.x", "p.b.y", "p.a.x"], ["p.b.y", "p.a.x", "p.b.y"])


def test_circle_is_absent_from_a_line_of_imports() -> None:
    found = trees(p__a__x="from p.b.y import Z", p__b__y="Z = 1")
    assert first_circle({name: imports_of(name, found) for name in found}) is None


def test_share_above_the_limit_breaks_the_rule() -> None:
    found = trees(p__a__x="x = 1\n" * 9, p__b__y="y = 1\n")
    assert shares(found) == [("a", 0.9), ("b", 0.1)]
    assert any("room a holds 90%" in line for line in broken_rules(found))


def test_parameters_are_counted_without_self() -> None:
    found = trees(
        p__a__x="def f(a, b, c, d, e, f, g, h, *, i): ...\nclass C:\n    def m(self, a, b, c, d, e, f, g, h): ..."
    )
    assert long_parameter_lists(found) == ["p.a.x.f has 9 parameters"]


def test_class_name_in_two_modules_is_named() -> None:
    found = trees(p__a__x="class Kind: ...", p__b__y="class Kind: ...\nclass _Own: ...", p__c__z="class _Own: ...")
    assert repeated_classes(found) == {"Kind": ["p.a.x", "p.b.y"]}
    assert [line for line in broken_rules(found) if "class Kind is defined in p.a.x and p.b.y" in line]


def test_linked_folders_are_parsed_under_the_name_they_are_imported_by(tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "reader.py").write_text("x = 1\n")
    (tmp_path / "palisade").mkdir()
    (tmp_path / "palisade" / "vault").symlink_to("../vault")
    assert list(parse_all(tmp_path / "palisade")) == ["palisade.vault.reader"]
