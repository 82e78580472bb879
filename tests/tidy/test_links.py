"""Links between documents, and the files and modules that documents and docstrings name, exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .conftest import Source

LINK = re.compile(r"\]\(([^)\s]+)\)")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"[\w./*-]+\.(?:py|md)")
MODULE = re.compile(
    r"(?:palisade\.)?(?:api|base|catalog|cli|client|fencing|metastore|node|raftgroup|recovery|segments|service"
    r"|topology|vault|wire)(?:\.(?!json)\w+)+"
)
HISTORY = {"CHANGELOG.md", "docs/bugs-found.md"}
"""They may name what has been renamed since."""
ELSEWHERE = {"local_read.py"}
"""Files that a reader of the README makes."""


def documents(root: Path) -> Iterator[tuple[Path, str]]:
    folders = ("docs", "palisade", "metastore", "node", "raftgroup", "recovery", "vault", "tests", "scripts")
    found = set(root.glob("*.md")).union(*((root / folder).rglob("*.md") for folder in folders))
    return ((path, FENCED.sub("", path.read_text(encoding="utf-8"))) for path in sorted(found))


def docstrings(source: Source) -> str:
    values = (node.value for node in ast.walk(source.tree) if isinstance(node, ast.Expr))
    return "\n".join(str(value.value) for value in values if isinstance(value, ast.Constant))


def file_exists(root: Path, owner: Path, name: str) -> bool:
    """Is it there, below the root, below `palisade/`, or below a folder that holds the document `owner`?"""
    parents = [folder for folder in owner.parents if root in folder.parents]
    patterns = [(folder, name) for folder in (root, root / "palisade", *parents)]
    if "tests" in owner.relative_to(root).parts:
        patterns.append((owner.parent, f"**/{name}"))
    return any(next(folder.glob(pattern), None) is not None for folder, pattern in patterns)


def module_exists(root: Path, name: str) -> bool:
    """Is it a package, a module, or a name that occurs in the module?"""
    path, parts = root / "palisade", name.removeprefix("palisade.").split(".")
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if not parts:
        return True
    module = path / f"{parts[0]}.py"
    text = (module if module.is_file() else path / "__init__.py").read_text(encoding="utf-8")
    names = parts[1:] if module.is_file() else parts
    return all(re.search(rf"\b{re.escape(each)}\b", text) for each in names)


def missing(root: Path, owner: Path, text: str) -> Iterator[str]:
    where = owner.relative_to(root).as_posix()
    if where in HISTORY:
        return
    for span in SPAN.findall(text):
        if FILE.fullmatch(span):
            exists = span in ELSEWHERE or file_exists(root, owner, span)
        else:
            exists = not MODULE.fullmatch(span) or module_exists(root, span)
        if not exists:
            yield f"{where}: {span}"


def test_relative_links_in_documents_exist(root: Path) -> None:
    broken = [
        f"{path.relative_to(root)}: {link}"
        for path, text in documents(root)
        for link in LINK.findall(text)
        if "://" not in link and not (path.parent / link.partition("#")[0]).exists()
    ]
    assert broken == []


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def missing_anchors(path: Path, text: str) -> Iterator[str]:
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        page = path.parent / target if target else path
        if anchor and "://" not in link and anchor not in anchors(page.read_text(encoding="utf-8")):
            yield link


def test_headings_that_links_name_exist(root: Path) -> None:
    broken = [
        f"{path.relative_to(root)}: {link}" for path, text in documents(root) for link in missing_anchors(path, text)
    ]
    assert broken == []


def test_heading_that_does_not_exist_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `title`, and more\n## Timing\n```\n# no heading\n```\n")
    links = "[a](page.md#a-title-and-more) [b](page.md#timing) [c](page.md#no-heading) [d](#timing) [e](page.md)"
    other = tmp_path / "other.md"
    other.write_text("## Other\n")
    assert [*missing_anchors(other, links)] == ["page.md#no-heading", "#timing"]


def test_files_and_modules_named_in_documents_exist(root: Path) -> None:
    assert [each for path, text in documents(root) for each in missing(root, path, text)] == []


def test_files_and_modules_named_in_docstrings_exist(root: Path, production: list[Source]) -> None:
    assert [each for source in production for each in missing(root, root / source.path, docstrings(source))] == []
