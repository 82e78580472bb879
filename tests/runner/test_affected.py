"""Which tests belong to a change, on a small tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.affected import affected, import_graph

TREE = {
    "store/__init__.py": "",
    "store/block.py": "",
    "store/history.py": "from store.block import Block",
    "store/machine.py": "def late():\n    from . import history",
    "store/table.json": "{}",
    "tests/conftest.py": "",
    "tests/support/worlds.py": "import store.machine",
    "tests/store/conftest.py": "import store.block as block",
    "tests/store/test_history.py": "import store.history",
    "tests/other/test_machine.py": "from tests.support import worlds",
    "tests/other/test_nothing.py": "",
    "README.md": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in TREE.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def belong(root: Path, *changed: str) -> set[str] | None:
    return affected(import_graph(root, TREE), changed)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("store/history.py", {"tests/store/test_history.py"}),
        ("store/machine.py", {"tests/other/test_machine.py"}),
        ("tests/support/worlds.py", {"tests/other/test_machine.py"}),
        ("tests/other/test_nothing.py", {"tests/other/test_nothing.py"}),
        ("tests/store/conftest.py", {"tests/store/test_history.py"}),
        ("store/nothing.py", {"tests/other/test_nothing.py"}),
        ("README.md", set()),
        ("store/gone.py", set()),
    ],
)
def test_tests_belong_to_what_they_import_themselves_or_through_helpers(
    root: Path, changed: str, tests: set[str]
) -> None:
    assert belong(root, changed) == tests


def test_a_conftest_counts_for_the_tests_of_its_folder(root: Path) -> None:
    assert belong(root, "store/block.py") == {"tests/store/test_history.py"}


def test_tests_that_import_a_module_are_preferred_to_those_that_reach_it_through_helpers(root: Path) -> None:
    """Except in the folder of its room: `tests/store` for `store/`. All tests reach the store through some helper."""
    (root / "tests/other/test_worlds.py").write_text("from tests.support import worlds")
    (root / "tests/other/test_nothing.py").write_text("import store.machine")
    tree = [path for path in TREE if path != "tests/other/test_machine.py"] + ["tests/other/test_worlds.py"]
    assert affected(import_graph(root, tree), ["store/machine.py"]) == {"tests/other/test_nothing.py"}
    (root / "tests/store/test_history.py").write_text("from tests.support import worlds")
    assert affected(import_graph(root, tree), ["store/machine.py"]) == {
        "tests/other/test_nothing.py", "tests/store/test_history.py",
    }  # fmt: skip


def test_helpers_of_the_simulator_lead_to_no_test_unless_they_are_what_changed(root: Path) -> None:
    """The seeds of `--quick` run the whole program."""
    helper, tree = root / "tests/sim/world.py", [*TREE, "tests/sim/world.py", "tests/sim/test_world.py"]
    helper.parent.mkdir()
    helper.write_text("import store.machine")
    (helper.parent / "test_world.py").write_text("from tests.sim import world")
    graph = import_graph(root, tree)
    assert affected(graph, ["store/machine.py"]) == {"tests/other/test_machine.py"}
    assert affected(graph, ["tests/sim/world.py"]) == {"tests/sim/test_world.py"}


def test_the_importers_of_a_module_without_tests_stand_for_it(root: Path) -> None:
    (root / "tests/store/conftest.py").write_text("")
    assert belong(root, "store/block.py") == {"tests/store/test_history.py"}


def test_a_data_file_belongs_to_the_modules_of_its_folder(root: Path) -> None:
    assert belong(root, "store/table.json") == {"tests/store/test_history.py", "tests/other/test_machine.py"}


@pytest.mark.parametrize("changed", ["setup.cfg", "tests/conftest.py"])
def test_a_change_of_the_harness_belongs_to_all_tests(root: Path, changed: str) -> None:
    assert belong(root, "store/history.py", changed) is None


def test_a_folder_that_is_a_link_is_the_folder(root: Path) -> None:
    """As `palisade/vault` may be one to `vault`."""
    (root / "whole").mkdir()
    (root / "whole" / "store").symlink_to(root / "store")
    (root / "tests/other/test_nothing.py").write_text("from whole.store.block import Block")
    assert belong(root, "store/block.py") == {"tests/store/test_history.py", "tests/other/test_nothing.py"}


def test_a_table_of_lazy_imports_counts_as_imports(tmp_path: Path) -> None:
    tree = {
        "palisade/cli/main.py": 'COMMANDS = {"put": "palisade.cli.kv:put"}',
        "palisade/cli/kv.py": "",
        "tests/cli/test_cli.py": "import palisade.cli.main",
    }
    for path, text in tree.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert affected(import_graph(tmp_path, tree), ["palisade/cli/kv.py"]) == {"tests/cli/test_cli.py"}
