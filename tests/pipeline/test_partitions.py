"""Partitions cover what is read exactly once, about evenly, from different nodes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from palisade.pipeline.partitions import count_of_parts, parts_of_history, parts_of_state

NODES = ("n1:1", "n2:1", "n3:1")
ALL = b"\0", b"\0"


@given(st.sets(st.binary(min_size=1, max_size=4), max_size=60).map(sorted), st.integers(1, 12))
def test_parts_of_a_state_cover_the_range_without_overlap(samples: list[bytes], wanted: int) -> None:
    parts = parts_of_state(ALL, 7, samples, wanted, NODES)
    assert (parts[0].key, parts[-1].range_end) == ALL
    assert all(left.range_end == right.key for left, right in pairwise(parts))
    keys = [part.key for part in parts]
    assert keys == sorted(set(keys))
    assert len(parts) == min(wanted, len([sample for sample in samples if sample > b"\0"]) + 1)
    assert {part.last for part in parts} == {7}


@given(st.lists(st.binary(min_size=1, max_size=3), max_size=30), st.integers(1, 9))
def test_parts_of_a_state_cover_the_range_whatever_the_samples_are(samples: list[bytes], wanted: int) -> None:
    """The keys by which a vault is divided are not verified. A part with its end before its begin would have no row."""
    parts = parts_of_state((b"b", b"x"), 7, samples, wanted, NODES)
    cuts = [part.key for part in parts] + [parts[-1].range_end]
    assert (cuts[0], cuts[-1]) == (b"b", b"x")
    assert cuts == sorted(set(cuts))
    assert all(left.range_end == right.key for left, right in pairwise(parts))


def test_parts_of_a_state_have_about_as_many_keys_each() -> None:
    samples = [b"%05d" % number for number in range(1_000)]
    parts = parts_of_state(ALL, 7, samples, 8, NODES)
    sizes = [
        sum(part.key <= sample < (part.range_end if part.range_end != b"\0" else b"~") for sample in samples)
        for part in parts
    ]
    assert len(sizes) == 8
    assert sum(sizes) == 1_000
    assert max(sizes) - min(sizes) <= 2


@given(st.integers(1, 1_000), st.integers(0, 500), st.integers(1, 40))
def test_parts_of_a_history_cover_each_revision_once(first: int, count: int, wanted: int) -> None:
    parts = parts_of_history(ALL, first, first + count - 1, wanted, NODES)
    found = [revision for part in parts for revision in range(part.first, part.last + 1)]
    assert found == list(range(first, first + count))
    sizes = [part.last - part.first + 1 for part in parts]
    assert len(parts) == min(wanted, count)
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_neighbouring_parts_begin_at_different_nodes_and_know_all() -> None:
    parts = parts_of_history(ALL, 1, 6, 6, NODES)
    assert [part.endpoints[0] for part in parts] == [*NODES, *NODES]
    assert all(sorted(part.endpoints) == sorted(NODES) for part in parts)


def test_number_of_parts_follows_the_rows_unless_it_is_given() -> None:
    assert count_of_parts(0, 0, 100) == 1
    assert count_of_parts(1_000, 0, 100) == 10
    assert count_of_parts(1_001, 0, 100) == 11
    assert count_of_parts(1_001, 3, 100) == 3
    assert count_of_parts(1 << 60, 0, 1) == 10_000
