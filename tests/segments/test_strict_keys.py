"""Every key of segments is strict and fails closed, by the built-in regions (issue 17): a lookup never holds as of a
state that was overtaken."""

from __future__ import annotations

import pytest

from palisade.catalog.publication import Manifest
from palisade.catalog.realtime import GIVEN_UP
from palisade.catalog.segment import ROOT
from palisade.segments.names import LAST_ASSIGNMENT, assignment_key
from palisade.vault.regions import Mode, Policy, Region, Regions, pack_region, region_key
from tests.support.segment_names import name, segment

KEYS = {
    "record": segment(1).key,
    "announcement": segment(1).announcement_key("n1"),
    "manifest": Manifest("flights").key,
    "assignment": assignment_key("n1", name(1)),
    "last assignment": LAST_ASSIGNMENT,
    "audit record": GIVEN_UP + b"flights/x",
}
WEAK = Region("weak", ROOT, Mode.EVENTUAL, Policy.REFETCH)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize(
    "stored", [[], [(region_key("weak"), pack_region(WEAK))]], ids=["built-in", "with a stored region"]
)
def test_key_of_segments_is_strict_and_fails_closed(key: bytes, stored: list[tuple[bytes, bytes]]) -> None:
    """Also if a client could store a region of this prefix."""
    regions = Regions.of(stored)
    region = regions.region_of(key)
    assert key.startswith(ROOT)
    assert regions.is_strict(key)
    assert (region.mode, region.policy, region.built_in) == (Mode.STRICT, Policy.FAIL_CLOSED, True)


def test_whole_range_that_a_broker_reads_is_strict() -> None:
    assert Regions.of([]).all_strict(ROOT, ROOT[:-1] + b"0")
