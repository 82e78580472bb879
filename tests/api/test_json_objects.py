"""Messages of a stream are cut out of its bytes, whatever the pieces (scenarios.md, "Everywhere")."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.api.http import json_objects
from palisade.api.http.json_objects import DEPTH_MAX, ObjectCutter
from palisade.api.http.protobuf_json import BadJson

TEXTS = st.text(alphabet='a{}"\\ \né', max_size=12)
NESTED = st.recursive(TEXTS | st.integers(), lambda inner: st.dictionaries(TEXTS, inner, max_size=3), max_leaves=12)
OBJECTS = st.dictionaries(TEXTS, NESTED, max_size=4)


@given(st.lists(OBJECTS, max_size=6), st.data())
def test_object_cutter_returns_the_same_objects_for_any_pieces(objects: list[Any], data: st.DataObject) -> None:
    stream = b" \n".join(json.dumps(each, ensure_ascii=False).encode() for each in objects)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    cutter = ObjectCutter()
    ends = [*cuts, len(stream)]
    pieces = [stream[begin:end] for begin, end in zip([0, *cuts], ends, strict=True)]
    found = [each for piece in pieces for each in cutter.feed(piece)]
    assert [json.loads(each) for each in found] == objects
    assert not cutter.rest.strip()


def test_object_cutter_returns_other_bytes_unchanged() -> None:
    cutter = ObjectCutter()
    assert cutter.feed(b"garbage 5 [1]") == []
    assert cutter.rest == b"garbage 5 [1]"
    assert cutter.feed(b"}") == [b"garbage 5 [1]}"]
    assert ObjectCutter().feed(b'5 {"a": 1} {') == [b'5 {"a": 1}']


class Counted:
    """MARKS, and the number of bytes that it has examined."""

    def __init__(self, marks: re.Pattern[bytes]) -> None:
        self._marks, self.looked_at = marks, 0

    def search(self, data: bytearray, begin: int) -> re.Match[bytes] | None:
        match = self._marks.search(data, begin)
        self.looked_at += max(0, (match.end() if match else len(data)) - begin)
        return match


def test_object_cutter_examines_each_byte_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read again from its beginning with each piece: a client that sent a MiB byte by byte blocked the node."""
    counted = Counted(json_objects.MARKS)
    monkeypatch.setattr(json_objects, "MARKS", counted)
    message = json.dumps({"key": 'x}"{\\' * 500}).encode()
    cutter = ObjectCutter()
    found = [each for at in range(len(message)) for each in cutter.feed(message[at : at + 1])]
    assert found == [message]
    assert counted.looked_at <= len(message)


def test_object_cutter_refuses_deep_nesting_where_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that sent 200 KB of braces each, twenty at a time, delayed others by 10 s on a busy machine."""
    counted = Counted(json_objects.MARKS)
    monkeypatch.setattr(json_objects, "MARKS", counted)
    deepest = b'{"a": ' * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX
    assert ObjectCutter().feed(deepest) == [deepest]
    counted.looked_at = 0
    with pytest.raises(BadJson, match="nested too deeply"):
        ObjectCutter().feed(b"{" * 200_000)
    assert counted.looked_at <= DEPTH_MAX + 1
