"""palisade segments realtime list: what records and reports of the nodes say about one segment."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.cli.realtime import one_of, reports_in
from tests.support.segment_names import name

RECORD = {"segment": name(1), "ingester": "n1", "digest": "", "replicas": 1, "nodes": ["n1"]}
REPORT = {"segment": name(1), "node": "n1", "state": "realtime", "rows": 5, "error": None}


@pytest.mark.parametrize(
    ("record", "report", "state", "note"),
    [
        ({}, REPORT, "realtime", None),
        ({"nodes": []}, REPORT, "missing", None),
        ({}, None, "missing", "its node does not answer"),
        ({"replicas": 0}, REPORT, "given-up", None),
        ({"digest": "rows-sha256:0"}, {**REPORT, "state": "handing-off"}, "handing-off", None),
    ],
)
def test_state_of_a_realtime_segment(record: dict[str, Any], report: Any, state: str, note: str | None) -> None:
    found = one_of({**RECORD, **record}, report)
    assert (found["state"], found["note"]) == (state, note)


def test_directory_that_its_node_cannot_read_is_listed_with_the_reason() -> None:
    content = {"node": "n1", "segments": [], "damaged": {name(1).replace("/", "@"): "a file is damaged at byte 9"}}
    (report,) = reports_in(content)
    found = one_of({**RECORD, "nodes": []}, report)
    assert (found["segment"], found["state"], found["rows"]) == (name(1), "damaged", None)
    assert found["note"] == "a file is damaged at byte 9"
