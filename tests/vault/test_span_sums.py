"""Keys that only one side has, by counts and sums (R11): findings are correct, other spans remain undecided."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.vault.span_sums import KEYS_PER_SPAN, SUM_MASK, Span, last_in, pack_spans, surplus, unpack_spans

KEYS = [b"flights/%06d" % number for number in range(1000)]


def difference(own: list[bytes], live: list[bytes], until: bytes | None = None) -> tuple[list[bytes], list[Span]]:
    """The keys that a vault with `own` finds to be gone, given the spans of a cluster with `live`, and the undecided
    spans.
    """
    gone, unclear, first = [], [], 0
    for span in unpack_spans(pack_spans(live, until)):
        last = last_in(own, first, span)
        found = surplus(own[first:last], span)
        gone += found or []
        unclear += [span] if found is None else []
        first = last
    assert first == len(own)
    return gone, unclear


@given(st.sets(st.integers(0, 999)), st.booleans())
def test_surplus_keys_are_found_or_their_span_is_undecided(deleted: set[int], bounded: bool) -> None:
    live = [key for number, key in enumerate(KEYS) if number not in deleted]
    gone, unclear = difference(KEYS, live, b"flights/1" if bounded else None)
    wanted = {KEYS[number] for number in deleted}
    assert set(gone) <= wanted
    assert len(gone) == len(set(gone))
    if not unclear:
        assert set(gone) == wanted


@pytest.mark.parametrize("deleted", [[], [0], [999], [0, 999], [40, 41], [31, 32], list(range(0, 1000, 20))])
def test_one_or_two_surplus_keys_of_a_span_are_identified(deleted: list[int]) -> None:
    live = [key for number, key in enumerate(KEYS) if number not in deleted]
    assert difference(KEYS, live) == ([KEYS[number] for number in deleted], [])


def test_empty_span_means_all_are_gone_and_three_are_undecided() -> None:
    assert difference(KEYS, []) == (KEYS, [])
    gone, unclear = difference(KEYS, KEYS[:10] + KEYS[13:])
    assert (gone, [span.end for span in unclear]) == ([], [KEYS[KEYS_PER_SPAN + 3]])


def test_missing_own_key_never_compensates_a_surplus() -> None:
    """It lacks one key and has one too many: the count does not show that, the sum of the bucket will."""
    live = KEYS[:32]
    assert surplus(KEYS[1:33], Span(b"", 32, sum(map(crc32, live)) & SUM_MASK)) == []
    assert surplus(KEYS[1:32], Span(b"", 32, sum(map(crc32, live)) & SUM_MASK)) is None


def test_impossible_or_ambiguous_sum_is_undecided() -> None:
    own = KEYS[:10]
    assert surplus(own, Span(b"", 9, 12345)) is None
    assert surplus(own, Span(b"", 8, 12345)) is None
    twice = [b"plumless", b"buckeroo", b"x"]  # the first two have one crc32
    assert crc32(twice[0]) == crc32(twice[1])
    assert surplus(sorted(twice), Span(b"", 2, (crc32(b"x") + crc32(twice[0])) & SUM_MASK)) is None
    assert surplus(sorted(twice), Span(b"", 1, crc32(twice[0]))) is None
    assert surplus(sorted(twice), Span(b"", 1, crc32(b"x"))) == sorted(twice[:2])


@given(st.lists(st.binary(min_size=1, max_size=8), unique=True, max_size=100))
def test_spans_round_trip(keys: list[bytes]) -> None:
    keys.sort()
    spans = unpack_spans(pack_spans(keys, None))
    assert sum(span.keys for span in spans) == len(keys)
    assert spans[-1].end == b""
    assert all(span.keys == KEYS_PER_SPAN for span in spans[:-1])


@given(st.integers(1, 200))
def test_incomplete_span_is_refused(cut: int) -> None:
    whole = pack_spans(KEYS[:100], KEYS[100])
    ends = {0}
    for span in unpack_spans(whole):
        ends.add(max(ends) + 8 + len(span.end))
    if cut in ends:
        assert unpack_spans(whole[:cut])
    elif cut < len(whole):
        with pytest.raises(ValueError, match="half a span"):
            unpack_spans(whole[:cut])
