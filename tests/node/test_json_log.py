"""--log-format json: one object per log line."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from palisade.base.errors import ConfigError
from palisade.node.config_sources import load_node_config
from palisade.node.json_log import JsonFormatter

TYPED = {
    "id": "n1", "cluster": "c", "data-dir": "d", "peer": "127.0.0.1:1", "http": "127.0.0.1:2", "stream": "127.0.0.1:3",
    "initial-cluster": "n1=127.0.0.1:1",
}  # fmt: skip


def formatted(message: str, *arguments: object, **fields: Any) -> dict[str, Any]:
    record = logging.LogRecord("palisade.x", logging.WARNING, "x.py", 1, message, arguments, fields.get("exc_info"))
    record.created = 1_700_000_000.25
    found: dict[str, Any] = json.loads(JsonFormatter().format(record))
    return found


def test_line_has_time_level_logger_and_message() -> None:
    assert formatted("%s has stopped", "n1") == {
        "time": "2023-11-14T22:13:20.250000Z", "level": "warning", "logger": "palisade.x", "message": "n1 has stopped",
    }  # fmt: skip


def test_event_and_fields_are_split() -> None:
    found = formatted("node state changed: node=%s address=%s state=failed", "n2", "127.0.0.1:7")
    assert found["event"] == "node state changed"
    assert found["fields"] == {"node": "n2", "address": "127.0.0.1:7", "state": "failed"}


def test_text_of_an_error_is_one_field() -> None:
    found = formatted("store not flushed: node=%s error=%s", "n2", "No space left: device=/dev/sda1")
    assert found["fields"] == {"node": "n2", "error": "No space left: device=/dev/sda1"}


def test_exception_is_in_the_same_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        found = formatted("failed", exc_info=sys.exc_info())
    assert "ValueError: two\nlines" in found["error"]


def test_option_takes_text_and_json_only() -> None:
    assert load_node_config(TYPED, None, {}).log_format == "text"
    assert load_node_config(TYPED, None, {"PALISADE_LOG_FORMAT": "json"}).log_format == "json"
    with pytest.raises(ConfigError, match="log-format: 'xml' is not one of text, json"):
        load_node_config(TYPED | {"log-format": "xml"}, None, {})
