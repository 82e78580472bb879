"""The public face: `import palisade` is cheap, and each of its names is what it claims to be (issue 15)."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import palisade
from palisade import errors
from palisade.catalog import errors as catalog_errors
from palisade.wire.error_codes import REFUSALS, error_of, refusal_of

HEAVY = {"aiohttp", "asyncio", "click", "lmdb", "msgpack", "pysyncobj", "rich", "typing", "uvloop"}
HTTP_ONLY = {"no-such-scenario", "scenario-runs", "scenarios-off", "join-rejected", "already-initialized", "join-later"}
"""Codes of requests that the clients do not make."""


def in_a_process(program: str) -> Any:
    command = [sys.executable, "-S", "-c", f"import json, sys, time\n{program}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(palisade.__file__).parents[1])
    return json.loads(ended.stdout)


def test_import_of_the_face_loads_nothing_else() -> None:
    loaded = in_a_process("import palisade; print(json.dumps(sorted(sys.modules)))")
    assert not HEAVY & set(loaded)
    assert [name for name in loaded if name.startswith("palisade")] == ["palisade"]


def test_import_of_the_face_takes_at_most_two_milliseconds_more_than_of_an_empty_package(tmp_path: Path) -> None:
    """Time of the processor, and the least of some: other processes make it longer, never shorter."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/__init__.py").touch()
    program = f"""
sys.path.insert(0, {str(tmp_path)!r})
times = [time.process_time()]
import empty
times.append(time.process_time())
import palisade
times.append(time.process_time())
print(json.dumps([times[1] - times[0], times[2] - times[1]]))
"""
    empty, face = map(min, zip(*(in_a_process(program) for _ in range(6)), strict=True))
    assert face - empty < 0.002


def declared() -> dict[str, str]:
    """Name -> module, as type checkers read it."""
    tree = ast.parse(Path(palisade.__file__).read_text(encoding="utf-8"))
    block = next(each for each in tree.body if isinstance(each, ast.If))
    found = {}
    for each in block.body:
        if isinstance(each, ast.ImportFrom) and each.module:
            found |= {alias.asname or alias.name: each.module for alias in each.names}
    return found


def test_names_of_type_checkers_are_those_of_the_interpreter() -> None:
    homes = declared()
    assert homes.keys() | {"errors"} == set(palisade.__all__)
    assert {name: home for name, home in homes.items() if name != "__version__"} == palisade._HOMES
    assert dir(palisade) == sorted(palisade.__all__)


@pytest.mark.parametrize("name", palisade.__all__)
def test_name_of_the_face_can_be_imported(name: str) -> None:
    value = getattr(palisade, name)
    assert value is getattr(palisade, name)
    if inspect.isclass(value):
        assert inspect.getdoc(value)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        getattr(palisade, "Clinet")  # noqa: B009


def test_errors_has_each_error_that_a_node_can_send() -> None:
    public = {getattr(errors, name) for name in errors.__all__}
    for kind, row in REFUSALS.items():
        if row.code in HTTP_ONLY:
            continue
        sent = type(error_of(row.code, "text"))
        assert sent in public, f"{kind.__name__} arrives as {sent.__name__}, which palisade.errors does not have"


def test_errors_are_named_once_and_say_whether_a_retry_helps() -> None:
    assert list(errors.__all__) == sorted(set(errors.__all__))
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, Exception)
        assert kind.__name__ == name
    assert errors.CatalogError is catalog_errors.CatalogError
    assert refusal_of(errors.Unavailable("x")).code == "unavailable"
