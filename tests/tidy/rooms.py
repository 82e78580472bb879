"""The rooms of the house, measured: their shares of the code, import circles, long parameter lists (issue 15).

`python -m tests.tidy.rooms` prints the figures and fails on a broken rule; `scripts/check` runs it. The order of the
rooms is a contract of import-linter (setup.cfg).
"""

from __future__ import annotations

import ast
import gc
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "palisade"
SHARE_MAX = 0.20
PARAMETERS_MAX = 8
SHARED_NAMES = {"Compare", "Put", "Txn"}
"""Class names with one meaning in two modules: of `palisade`, which take text, and the requests that they become."""

Trees = Mapping[str, ast.Module]
"""By the dotted name of the module."""


def parse_all(root: Path) -> dict[str, ast.Module]:
    """Every module below `root`; symbolic links to folders are followed."""
    found: dict[str, ast.Module] = {}
    for room in sorted(root.iterdir()):
        paths = sorted(room.resolve().rglob("*.py")) if room.is_dir() else [room] if room.suffix == ".py" else []
        for path in paths:
            below = path.relative_to(room.resolve()).parts if room.is_dir() else ()
            parts = [root.name, room.stem, *below]
            name = ".".join(parts).removesuffix(".py").removesuffix(".__init__")
            found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements of a module at every depth. Expressions, most of the tree, are not visited."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        children = ast.iter_child_nodes(node)
        waiting += [each for each in children if isinstance(each, ast.stmt | ast.excepthandler | ast.match_case)]


def imports_of(name: str, trees: Trees) -> set[str]:
    """The modules of `trees` that module `name` imports, in functions and for type checking too."""
    found: set[str] = set()
    for node in statements(trees[name]):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {member for member in members if member in trees}
            found |= modules or {node.module}
    return {each for each in found if each in trees and each != name}


def first_circle(graph: Mapping[str, Iterable[str]]) -> list[str] | None:
    """One import circle, as the list of its modules in order; None if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def shares(trees: Trees) -> list[tuple[str, float]]:
    """(room, its part of all lines), largest first."""
    lines: Counter[str] = Counter()
    for name, tree in trees.items():
        parts = name.split(".")
        if len(parts) > 1:
            lines[parts[1]] += max((getattr(node, "end_lineno", 0) or 0 for node in tree.body), default=0)
    total = sum(lines.values()) or 1
    return [(room, count / total) for room, count in lines.most_common()]


def long_parameter_lists(trees: Trees) -> list[str]:
    """Functions with more than PARAMETERS_MAX parameters, not counting self and cls."""
    return [
        f"{name}.{node.name} has {count} parameters"
        for name, tree in trees.items()
        for node in statements(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (count := _parameters(node.args)) > PARAMETERS_MAX
    ]


def _parameters(arguments: ast.arguments) -> int:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in named)


def repeated_classes(trees: Trees) -> dict[str, list[str]]:
    """Public class names that are defined in several modules."""
    places: dict[str, list[str]] = {}
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def broken_rules(trees: Trees) -> Iterator[str]:
    circle = first_circle({name: imports_of(name, trees) for name in trees})
    if circle:
        yield f"import circle: {' -> '.join(circle)}"
    for room, share in shares(trees):
        if share > SHARE_MAX:
            yield f"room {room} holds {share:.0%} of the code, more than {SHARE_MAX:.0%}: split it"
    yield from long_parameter_lists(trees)
    for name, modules in repeated_classes(trees).items():
        if name not in SHARED_NAMES:
            yield f"class {name} is defined in {' and '.join(modules)}: one name, one meaning"


def main() -> int:
    gc.disable()  # halves the time of parsing
    trees = parse_all(ROOT)
    print("rooms:", ", ".join(f"{room} {share:.1%}" for room, share in shares(trees)))
    print("class names defined in several modules:", len(repeated_classes(trees)))
    broken = list(broken_rules(trees))
    print("import circle:", "yes" if any(line.startswith("import circle") for line in broken) else "none")
    print(f"functions with more than {PARAMETERS_MAX} parameters: {len(long_parameter_lists(trees))}")
    for line in broken:
        print(f"broken: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
