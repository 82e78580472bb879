"""Which node keeps a segment (issue 4: segments of the demo catalog on the nodes; seed 001, case c: assignments)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.catalog.segment import SegmentRecord
from palisade.segments.assignment import assign, changes, holders
from palisade.segments.names import (
    SIZE_BYTES_MAX,
    Wanted,
    assignment_key,
    checked_name,
    name_below,
    own_prefix,
    wanted_of,
)
from palisade.wire.segment_errors import BadSegment
from tests.support.segment_names import segment

SEGMENTS = [segment(day, month=month) for month in range(1, 13) for day in range(1, 29)]
NAMES = [str(each) for each in SEGMENTS]
NODES = ["n1", "n2", "n3", "f1"]
DIGEST = "sha256:" + "ab" * 32


def records(replicas: int) -> list[SegmentRecord]:
    return [SegmentRecord(each, 1, 2, 10, DIGEST, replicas) for each in SEGMENTS]


def test_each_segment_has_as_many_holders_as_replicas_and_every_node_holds_some() -> None:
    made = assign(records(2), NODES)
    assert len(made) == 2 * len(NAMES)
    shares = [sum(key.startswith(own_prefix(node)) for key in made) for node in NODES]
    assert min(shares) > len(NAMES) / 4


@settings(deadline=None)
@given(st.permutations(NODES), st.integers(0, 4))
def test_assignment_is_independent_of_the_order_of_nodes(nodes: list[str], replicas: int) -> None:
    assert assign(records(replicas), nodes) == assign(records(replicas), NODES)


@pytest.mark.parametrize("replicas", [1, 2])
def test_removed_node_moves_only_its_own_segments(replicas: int) -> None:
    """And one that comes only what it gets, which is the same seen from the other side."""
    for name in NAMES:
        before, after = set(holders(name, NODES, replicas)), set(holders(name, NODES[:-1], replicas))
        assert before - {"f1"} <= after
        assert ("f1" in before) == (before != after)


def test_changes_contain_only_differences() -> None:
    present = assign(records(1), NODES)
    assert len(changes(present, present)) == 0
    moved = changes(present, assign(records(1), NODES[:-1]))
    assert {key for key, _ in moved.puts}.isdisjoint(present)
    assert all(key.startswith(own_prefix("f1")) for key in moved.deletes)
    assert len(moved.puts) == len(moved.deletes) > 0


BAD_NAMES = [
    "", "/", "flights", "flights/", "flights/2013-01-01", NAMES[0] + "/x", NAMES[0] + "\n", "../../etc/passwd",
    NAMES[0].replace("flights", ".."), NAMES[0].replace("flights", ".incoming-1"), NAMES[0].replace("flights", "a@b"),
    NAMES[0].replace("2013", "٢٠١٣"), NAMES[0].replace("T00", "T24"), NAMES[0][:-1], "x" * 65 + NAMES[0][7:],
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_NAMES)
def test_segment_name_that_could_be_a_path_is_rejected(text: str) -> None:
    with pytest.raises(BadSegment):
        checked_name(text)


def test_assignment_key_that_is_not_text_is_rejected() -> None:
    with pytest.raises(BadSegment):
        name_below(own_prefix("n1"), own_prefix("n1") + b"\xff/2013-01-01")
    assert name_below(own_prefix("n1"), assignment_key("n1", NAMES[0])) == NAMES[0]


BAD_VALUES = [
    b"", b"1", b"[]", b"{}", b"\xff", b'{"digest": 1, "size_bytes": 1}', b'{"digest": "md5:00", "size_bytes": 1}',
    b'{"digest": "%s", "size_bytes": -1}' % DIGEST.encode(), b'{"digest": "%s", "size_bytes": true}' % DIGEST.encode(),
    b'{"digest": "%s", "size_bytes": %d}' % (DIGEST.encode(), SIZE_BYTES_MAX + 1), b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("value", BAD_VALUES, ids=lambda value: repr(value[:20]))
def test_assignment_value_without_a_version_is_rejected(value: bytes) -> None:
    with pytest.raises(BadSegment):
        wanted_of(value)


def test_assignment_round_trips_and_the_record_of_a_segment_parses() -> None:
    assert wanted_of(Wanted(DIGEST, 10).to_value()) == Wanted(DIGEST, 10)
    assert wanted_of(records(1)[0].to_bytes()) == Wanted(DIGEST, 10)
