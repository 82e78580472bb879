"""The JSON shapes and the printed lines are stable for any bytes in a key."""

from __future__ import annotations

import pytest

from palisade.catalog.demo.entries import CatalogEntry
from palisade.cli.ndjson import LineError, read_entries
from palisade.cli.printing import readable, shorten
from palisade.metastore.results import DeleteRangeResult, Event, KeyValue, LeaseInfo, RevisionEvents
from palisade.wire import json_results as shapes

TEXT = KeyValue("/schlüssel".encode(), b"v", 2, 3, 1, 0)
BINARY = KeyValue(b"\xff\x00", b"\x80", 4, 5, 2, (1 << 62) + 1)


def test_utf8_text_stays_text() -> None:
    assert shapes.key_value(TEXT) == {
        "key": "/schlüssel", "value": "v", "create_revision": 2, "mod_revision": 3, "version": 1
    }  # fmt: skip


def test_binary_is_base64_and_lease_ids_are_strings() -> None:
    assert shapes.key_value(BINARY) == {
        "key_base64": "/wA=", "value_base64": "gA==", "create_revision": 4, "mod_revision": 5, "version": 2,
        "lease": str((1 << 62) + 1),
    }  # fmt: skip


def test_deleted_key_has_only_key_and_revision() -> None:
    gone = KeyValue(b"/a", b"", 0, 9, 0, 0)
    events = RevisionEvents(9, (Event(True, gone, TEXT), Event(False, TEXT, None)))
    assert shapes.events_shape(events) == {
        "revision": 9,
        "events": [
            {"type": "delete", "kv": {"key": "/a", "mod_revision": 9}, "prev_kv": shapes.key_value(TEXT)},
            {"type": "put", "kv": shapes.key_value(TEXT)},
        ],
    }


def test_missing_values_are_omitted() -> None:
    assert shapes.delete_shape(DeleteRangeResult(3, 0)) == {"revision": 3, "deleted": 0}
    assert shapes.lease_info_shape(LeaseInfo(3, 7, 9_250, 30_000, (b"/a",))) == {
        "id": "7", "ttl_s": 9.25, "granted_ttl_s": 30, "keys": [{"key": "/a"}]
    }  # fmt: skip


def test_printed_line_stays_one_line() -> None:
    assert readable(b"a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert readable(b"a\n\xff") == "0x610aff"
    assert len(shorten("x" * 100)) == 60


def test_json_lines_become_entries_and_the_last_of_a_key_counts() -> None:
    lines = [
        b'{"key": "/a", "value": "1"}', b"", b'{"key_base64": "/w==", "value_base64": "AA=="}',
        b'{"key": "/j", "value": {"b": [1, "x"]}}', b'{"key": "/a", "value": "2"}',
    ]  # fmt: skip
    assert read_entries(lines) == [
        CatalogEntry(b"/a", b"2"), CatalogEntry(b"\xff", b"\0"), CatalogEntry(b"/j", b'{"b":[1,"x"]}')
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "line 1: "),
        (b"[]", "is not an object such as"),
        (b'{"key": "/a"}', "give either value or value_base64"),
        (b'{"key": "/a", "value": 1, "value_base64": ""}', "give either value or value_base64"),
        (b'{"key": "", "value": 1}', "the key is empty"),
        (b'{"key": 5, "value": 1}', "key is not a string"),
        (b'{"key_base64": "?", "value": 1}', "key_base64 is not base64: '?'; give letters"),
        (b'{"key": "/a", "value": 1, "ttl": 5}', "unknown field 'ttl'"),
        (b'{"key": "\xff"}', "line 1: "),
    ],
)
def test_malformed_json_line_is_refused_with_its_number(line: bytes, says: str) -> None:
    with pytest.raises(LineError) as refusal:
        read_entries([line])
    assert says in str(refusal.value)
