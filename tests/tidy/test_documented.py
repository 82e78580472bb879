"""Every HTTP path is in the documents, and docs/commands.md has every command as --help prints it (issues 15, 17).

The metrics are compared with running nodes: `e2e/test_metrics_page.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from palisade.cli.main import main
from tests.tidy.commands_page import PAGE, TOPICS, page

ROOT = Path(__file__).parents[2]
PAGES = [path for path in sorted((ROOT / "docs").glob("*.md")) if path != PAGE]
LINES = [line for path in PAGES for line in path.read_text("utf-8").splitlines()]
SEGMENT = "{data_source}/{start}/{end}/{version}/{partition}"


def is_documented(name: str) -> bool:
    """As a whole, or, beside another one that begins alike, without that beginning: `/v1/put`, `/range`."""
    if any(re.search(rf"(?<![\w/]){re.escape(name)}(?![\w-])", line) for line in LINES):
        return True
    shortened = [(line, end) for line in LINES for end in re.findall(r"`(/[a-z_-]+)[` ]", line)]
    return any(name.endswith(end) and name.removesuffix(end) in line for line, end in shortened)


def paths() -> list[str]:
    document = json.loads((ROOT / "palisade" / "api" / "openapi.json").read_text("utf-8"))
    return [path.replace(SEGMENT, "<segment>") for path in document["paths"]]


@pytest.mark.parametrize("path", paths())
def test_path_is_documented(path: str) -> None:
    assert is_documented(path), f"{path}: add it to docs/"


def test_path_that_is_not_documented_is_found() -> None:
    """Neither a path that another one begins or ends with, nor a short form beside others, counts."""
    for path in ("/v1/segments/unused", "/v1/lease", "/v1/topology/mark-unused"):
        assert not is_documented(path)
    assert "/v1/segments/<segment>/close" in paths()
    assert len(paths()) > 80


def test_page_of_commands_is_that_of_the_program() -> None:
    assert PAGE.read_text("utf-8") == page(), "run scripts/fix"


def test_page_of_commands_has_each_command_once() -> None:
    listed = Counter(name for names in TOPICS.values() for name in names)
    assert listed == Counter(name for name, command in main.commands.items() if not command.hidden)
    heads = re.findall(r"^### palisade (.*)$", page(), re.MULTILINE)
    assert len(heads) == len({*heads}) > 150
    assert {"put", "catalog add-column", "pipeline run ingest", "segments realtime give-up"} <= {*heads}


INTERNAL = re.compile(r"^\s*(?:from|import) palisade\.(?!errors\b|spark\b|pipeline\b)\w+", re.MULTILINE)


def test_documents_for_users_import_public_names_only() -> None:
    """The others may change in any release."""
    pages = {path.name: path.read_text("utf-8") for path in (*PAGES, ROOT / "README.md")}
    assert {name: found for name, text in pages.items() if (found := INTERNAL.findall(text))} == {}
    assert INTERNAL.findall("from palisade.wire.scan_pages import rows_of\nfrom palisade.spark import session")
