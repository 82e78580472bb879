"""Every command, HTTP path and metric of segments and of roles is in the documents (issue 17)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from palisade.cli.main import main

ROOT = Path(__file__).parents[2]
LINES = [line for page in sorted((ROOT / "docs").glob("*.md")) for line in page.read_text("utf-8").splitlines()]
GROUPS = ("segments", "query", "activation", "journal")
SEGMENT = "{data_source}/{start}/{end}/{version}/{partition}"
FAMILIES = (
    "palisade/api/http/broker_families.py",
    "palisade/api/http/realtime_families.py",
    "palisade/api/http/segment_families.py",
    "palisade/journal/metrics.py",
)


def commands(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from commands(each, f"{name} {each.name}")
    else:
        yield name


def is_documented(name: str) -> bool:
    """As a whole, or, beside another one that begins alike, without that beginning: `palisade_x_read`, `_write`; the
    suffix that Prometheus adds to counters may be there."""
    if any(re.search(rf"(?<![\w/]){re.escape(name)}(_total)?(?![\w-])", line) for line in LINES):
        return True
    shortened = [(line, end) for line in LINES for end in re.findall(r"`([_/][a-z_-]+)[` ]", line)]
    for line, end in shortened:
        for tail in (end, end.removesuffix("_total")):
            if name.endswith(tail) and name.removesuffix(tail) in line:
                return True
    return False


def names() -> list[str]:
    context = click.Context(main)
    found = [each for group in GROUPS for each in commands(main.get_command(context, group), f"palisade {group}")]
    paths = json.loads((ROOT / "palisade" / "api" / "openapi.json").read_text("utf-8"))["paths"]
    found += [path.replace(SEGMENT, "<segment>") for path in paths if path.startswith("/v1/segments")]
    for file in FAMILIES:
        text = (ROOT / file).read_text("utf-8")
        infos = set(re.findall(r'InfoMetricFamily\("(palisade_\w+)"', text))
        found += [f"{each}_info" if each in infos else each for each in re.findall(r'"(palisade_\w+)"', text)]
    return found


@pytest.mark.parametrize("name", names())
def test_name_is_documented(name: str) -> None:
    assert is_documented(name), f"{name}: add it to docs/"


def test_name_that_is_not_documented_is_found() -> None:
    """Neither a name that another one begins or ends with, nor a short form beside others, counts."""
    for name in ("palisade segments set", "palisade_segments_lost", "/v1/segments/unused", "palisade_journal_peers"):
        assert not is_documented(name)
    assert {"palisade segments realtime give-up", "/v1/segments/<segment>/close"} <= {*names()}
    assert len(names()) > 60
