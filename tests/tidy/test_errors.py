"""Every error of the product derives from one root, with a stable code and a retry flag (`palisade/base/errors.py`)."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator

from palisade.base.errors import PalisadeError

from .conftest import Source

CONTROL_FLOW = {
    "palisade/catalog/engine.py ProcedurePending", "palisade/catalog/plan.py NeedsRange",
    "palisade/catalog/plan.py NeedsRow", "palisade/catalog/procedures.py IllegalStep",
    "palisade/cli/backup.py BrokenOff", "palisade/cli/http_request.py NoAnswer",
    "palisade/cli/http_request.py RequestRefused", "palisade/cli/output.py OutputFailed",
    "palisade/cli/stop_signals.py Stopped",
    "palisade/cli/scenarios/stage.py DidNotHold", "palisade/service/authorization/rows.py WouldBlock",
    "palisade/topology/swim/wire.py Dropped",
    "raftgroup/message_screen.py UnsoundAppend", "recovery/vault_opening.py Unwanted", "vault/fence_page.py TornPage",
}  # fmt: skip
"""Exceptions that never leave their room: they steer it, or end one command."""
BUILT_IN = {"Exception", "OSError", "RuntimeError", "LookupError", "KeyError"}


def roots(source: Source) -> Iterator[str]:
    """The classes that derive from a built-in exception alone. Texts of bad values may be plain ValueErrors."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            if bases & BUILT_IN:
                yield f"{source.path} {node.name}"


def tree(kind: type[PalisadeError]) -> Iterator[type[PalisadeError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from tree(each)


def test_errors_have_one_root(production: list[Source]) -> None:
    found = {name for source in production for name in roots(source)}
    assert found - CONTROL_FLOW == {"palisade/base/errors.py PalisadeError"}


def test_error_codes_are_kebab_case_and_retry_is_a_boolean(production: list[Source]) -> None:
    for source in production:
        if "Error" in source.text and source.path.endswith("errors.py"):
            path = source.path if source.path.startswith("palisade/") else f"palisade/{source.path}"
            importlib.import_module(path.removesuffix(".py").replace("/", "."))
    kinds = list(tree(PalisadeError))
    assert len(kinds) > 60
    for kind in kinds:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code), kind
        assert isinstance(kind.retry, bool), kind
