"""Who keeps which partition (issue 4: partitions of the demo catalog on the nodes; seed 001, case c: assignments)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from palisade.wire.segment_errors import BadPartition

NAMES = [f"flights/2013-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29)]
NODES = ["n1", "n2", "n3", "f1"]
DIGEST = "sha256:" + "ab" * 32
WANTED = {name: Wanted(DIGEST, 10) for name in NAMES}


def test_each_partition_has_as_many_holders_as_replicas_and_every_node_holds_some() -> None:
    made = assign(WANTED, NODES, 2)
    assert len(made) == 2 * len(NAMES)
    shares = [sum(key.startswith(own_prefix(node)) for key in made) for node in NODES]
    assert min(shares) > len(NAMES) / 4


@settings(deadline=None)
@given(st.permutations(NODES), st.integers(0, 4))
def test_assignment_is_independent_of_the_order_of_nodes(nodes: list[str], replicas: int) -> None:
    assert assign(WANTED, nodes, replicas) == assign(WANTED, NODES, replicas)


@pytest.mark.parametrize("replicas", [1, 2])
def test_removed_node_moves_only_its_own_partitions(replicas: int) -> None:
    """And one that comes only what it gets, which is the same seen from the other side."""
    for name in NAMES:
        before, after = set(holders(name, NODES, replicas)), set(holders(name, NODES[:-1], replicas))
        assert before - {"f1"} <= after
        assert ("f1" in before) == (before != after)


def test_changes_contain_only_differences() -> None:
    present = assign(WANTED, NODES, 1)
    assert len(changes(present, present)) == 0
    moved = changes(present, assign(WANTED, NODES[:-1], 1))
    assert {key for key, _ in moved.puts}.isdisjoint(present)
    assert all(key.startswith(own_prefix("f1")) for key in moved.deletes)
    assert len(moved.puts) == len(moved.deletes) > 0


BAD_NAMES = [
    "", "/", "flights", "flights/", "/2013-01-01", "flights/2013-1-1", "flights/2013-13-01", "flights/2013-01-32",
    "../../etc/passwd", "flights/../../etc", "flights/2013-01-01/x", "flights/2013-01-01\n", "Flights/2013-01-01",
    ".incoming-1/2013-01-01", "flights\0/2013-01-01", "x" * 64 + "/2013-01-01", "flights/٢٠١٣-٠١-٠١",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_NAMES)
def test_partition_name_that_could_be_a_path_is_rejected(text: str) -> None:
    with pytest.raises(BadPartition):
        checked_name(text)


def test_assignment_key_that_is_not_text_is_rejected() -> None:
    with pytest.raises(BadPartition):
        name_below(own_prefix("n1"), own_prefix("n1") + b"\xff/2013-01-01")
    assert name_below(own_prefix("n1"), assignment_key("n1", NAMES[0])) == NAMES[0]


BAD_VALUES = [
    b"", b"1", b"[]", b"{}", b"\xff", b'{"digest": 1, "size_bytes": 1}', b'{"digest": "md5:00", "size_bytes": 1}',
    b'{"digest": "%s", "size_bytes": -1}' % DIGEST.encode(), b'{"digest": "%s", "size_bytes": true}' % DIGEST.encode(),
    b'{"digest": "%s", "size_bytes": %d}' % (DIGEST.encode(), SIZE_BYTES_MAX + 1), b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("value", BAD_VALUES, ids=lambda value: repr(value[:20]))
def test_assignment_value_without_a_version_is_rejected(value: bytes) -> None:
    with pytest.raises(BadPartition):
        wanted_of(value)


def test_assignment_round_trips_and_the_catalogs_record_parses() -> None:
    assert wanted_of(WANTED[NAMES[0]].to_value()) == Wanted(DIGEST, 10)
    record = b'{"day":"2013-01-01","digest":"%s","rows":2,"size_bytes":10,"table":"flights"}' % DIGEST.encode()
    assert wanted_of(record) == Wanted(DIGEST, 10)
