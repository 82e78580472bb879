"""docs/metrics.md as a specification: the families that each kind of node serves, with types, labels and values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
KINDS = ("member", "--follow", "--standalone", "journal copy")
OF_HISTOGRAMS = {"le"}
"""The page explains it once."""


@dataclass(frozen=True, slots=True)
class Documented:
    """One row. `labels`: the list of values of each label as text, empty if they are not fixed."""

    type: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class Served:
    """One family. `labels`: the values of each label that occur; none without samples."""

    type: str
    labels: dict[str, set[str]]


def rows(page: str, heading: str) -> Iterator[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None, f"{PAGE.name} has no section {heading}"
    lines = [line for line in section[1].splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.split("|")[1:-1]]


def sections(page: str, kind: str) -> Iterator[str]:
    """Of a node of this kind, with `--segments`."""
    for name, *served_by in rows(page, "Which node serves what"):
        if served_by[KINDS.index(kind)]:
            yield name[1 : name.index("]")]


def documented(kind: str) -> dict[str, Documented]:
    page, found = PAGE.read_text("utf-8"), {}
    for section in sections(page, kind):
        for name, of_type, labels, _ in rows(page, section):
            listed = re.findall(r"`(\w+)`(?:: ([^`]+))?(?=, `|$)", labels)
            found[name.strip("`")] = Documented(of_type, dict(listed))
    return found


def served(text: str) -> dict[str, Served]:
    """By the name that queries use."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels: dict[str, set[str]] = {}
        for sample in family.samples:
            for label in sample.labels.keys() - OF_HISTOGRAMS:
                labels.setdefault(label, set()).add(sample.labels[label])
        found[name] = Served(family.type, labels)
    return found


def differences(kind: str, text: str, absent: Collection[str] = ()) -> list[str]:
    """Between the page and what a node of this kind has served. `absent`: what it does not serve in its state."""
    page, node = documented(kind), served(text)
    found = [f"{name}: not on the page" for name in node.keys() - page.keys()]
    found += [f"{name}: not served" for name in page.keys() - node.keys() - {*absent}]
    found += [f"{name}: served" for name in node.keys() & {*absent}]
    for name in node.keys() & page.keys():
        found += [f"{name}: {text}" for text in unlike(page[name], node[name])]
    return sorted(found)


def unlike(page: Documented, node: Served) -> Iterator[str]:
    if page.type != node.type:
        yield f"it is a {node.type}"
    if node.labels and node.labels.keys() != page.labels.keys():
        yield f"its labels are {', '.join(sorted(node.labels))}"
        return
    for label, values in node.labels.items():
        listed = page.labels[label]
        if not listed or " or " in listed:
            continue
        for value in sorted(values, key=len, reverse=True):
            if value not in listed:
                yield f"{label}={value} is not on the page"
            listed = listed.replace(value, "", 1)
        if page.type == "gauge" and listed.strip(", "):
            yield f"{label}={listed.strip(', ')} is not served"
