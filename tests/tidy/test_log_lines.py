"""Log lines are an event and its fields, "role changed: node=n1 term=2", which `node/json_log.py` splits (issue 15)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from .conftest import Source

LEVELS = {"debug", "info", "warning", "error", "exception"}
FIELDS = re.compile(r"[^:%]+: [a-z_]+=%(?!.*: %)|[^%]*$|%s$")
"""An event with fields, a constant, or a line that was made elsewhere. No text follows a field: it would be lost in
the fields."""
TEXTS = {
    "a strict write may wait %.2f s for a node that does not answer, and requests end after %.2f s: raise "
    "--request-deadline-s, or lower --fence-s",
    "client refused: %s",
    "forced without the metadata store: %s",
    "recovering: %s",
    "refused: %d more requests, not logged",
    "refused: %s from %s: %s: %s",
    "retention %s",
    "started: %s",
    "strict writes wait up to %.2f s for %s when it does not answer, and %.2f s for a node with the times of this one: "
    "give all nodes the same --fence-s, --fence-drift and --fence-margin-s",
    "%s; retrying at the next pass",
    "%s; run the same release of palisade on both nodes",
}
"""Advice, the audit log, and lists: sentences on purpose."""


def log_lines(sources: Iterable[Source]) -> Iterator[tuple[str, str]]:
    """(the place, the format) of each call of a logger with a constant format."""
    for source in sources:
        for node in ast.walk(source.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id.lstrip("_") in ("log", "logger")
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                yield f"{source.path}:{node.lineno}", str(node.args[0].value)


def test_log_lines_are_an_event_and_its_fields(production: list[Source]) -> None:
    found = {place: text for place, text in log_lines(production) if text not in TEXTS and not FIELDS.match(text)}
    assert found == {}, "write 'event: key=%s key=%s'"


def test_line_in_another_form_is_found() -> None:
    text = (
        "log.info('%s leads in term %d', a, b)\nlog.info('leads: term=%d', b)\nlog.info('ended')\nlog.info('%s', a)\n"
        "log.info('waits: phase=%s: %s', a, b)\n"
    )
    found = [line for _, line in log_lines([Source("x.py", text, ast.parse(text))]) if not FIELDS.match(line)]
    assert found == ["%s leads in term %d", "waits: phase=%s: %s"]


def test_listed_sentences_are_logged(production: list[Source]) -> None:
    assert {text for _, text in log_lines(production)} >= TEXTS
