"""Regions: which keys are strict, which policy applies, and the effect of a malformed record (issue 4, F7)."""

from __future__ import annotations

import json
import random

import pytest

from palisade.vault.regions import (
    BUILT_IN,
    INFINITE_TTL,
    OTHER,
    Mode,
    Policy,
    Region,
    Regions,
    check_region,
    either,
    pack_region,
    prefix_end,
    region_key,
    unpack_region,
)


def of(*regions: Region) -> Regions:
    return Regions.of([(region_key(region.name), pack_region(region)) for region in regions])


def strict(name: str, prefix: bytes, policy: Policy = Policy.FAIL_CLOSED) -> Region:
    return Region(name, prefix, Mode.STRICT, policy)


def eventual(name: str, prefix: bytes) -> Region:
    return Region(name, prefix, Mode.EVENTUAL, Policy.REFETCH)


def test_only_palisade_keys_are_strict_by_default() -> None:
    """Each with the policy that seed 000 gives its cache."""
    regions = Regions.of([])
    assert [region.name for region in regions.all] == [region.name for region in BUILT_IN]
    assert regions.region_of(b"/app/x") is OTHER
    assert not regions.is_strict(b"/app/x")
    policies = {
        b"palisade/regions/x": Policy.FAIL_CLOSED,
        b"palisade/catalog/permissions/alice": Policy.DENY,
        b"palisade/catalog/ttl/db": Policy.SAFE_DEFAULT,
    }
    for key, policy in policies.items():
        assert regions.is_strict(key)
        assert regions.region_of(key).policy is policy
    assert regions.region_of(b"palisade/catalog/ttl/db").default == INFINITE_TTL


def test_longest_prefix_determines_the_region() -> None:
    outer, hole, inner = strict("outer", b"/a/"), eventual("hole", b"/a/b/"), strict("inner", b"/a/b/c/")
    regions = of(hole, outer, inner)
    found = {key: regions.region_of(key).name for key in (b"/a/x", b"/a/b/x", b"/a/b/c/x", b"/x")}
    assert found == {b"/a/x": "outer", b"/a/b/x": "hole", b"/a/b/c/x": "inner", b"/x": ""}
    assert [regions.is_strict(key) for key in found] == [True, False, True, False]


def test_is_strict_follows_the_region() -> None:
    rng = random.Random(4)
    for _ in range(300):
        regions = of(
            *(
                Region(f"r{number}", rng.randbytes(rng.randrange(3)), rng.choice(list(Mode)), Policy.REFETCH)
                for number in range(rng.randrange(5))
            )
        )
        for _ in range(20):
            key = rng.randbytes(rng.randrange(1, 5))
            assert regions.is_strict(key) == (regions.region_of(key).mode is Mode.STRICT)
            start, end = sorted((rng.randbytes(2), rng.randbytes(2)))
            if start <= key < end and regions.is_strict(key):
                assert regions.has_strict(start, end)
            covering = regions.covering(start, end)
            if covering is not None and start <= key < end:
                assert regions.region_of(key) == covering


def test_region_record_round_trips() -> None:
    for region in (
        strict("a", b"/a/"),
        eventual("b-2", b"\xff\x00"),
        Region("ttl.mine", b"/ttl/", Mode.STRICT, Policy.SAFE_DEFAULT, b"\x80"),
        Region("all", b"", Mode.STRICT, Policy.SAFE_DEFAULT, b""),
    ):
        check_region(region)
        assert unpack_region(region.name, pack_region(region)) == region
    assert json.loads(pack_region(strict("a", b"/a/"))) == {"prefix": "/a/", "mode": "strict", "policy": "fail_closed"}


@pytest.mark.parametrize(
    ("region", "remedy"),
    [
        (strict("Bad name", b"/a/"), "invalid region name"),
        (strict("palisade.mine", b"/a/"), "invalid region name"),
        (strict("", b"/a/"), "invalid region name"),
        (strict("a", b"palisade/catalog/"), "choose another prefix"),
        (strict("a", bytes(5000)), "at most 4096 bytes"),
        (Region("a", b"/a/", Mode.STRICT, Policy.DENY, b"x"), "only safe_default has a default"),
        (Region("a", b"/a/", Mode.STRICT, Policy.SAFE_DEFAULT, bytes(70_000)), "at most 65536 bytes"),
    ],
)
def test_invalid_regions_are_refused(region: Region, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        check_region(region)


@pytest.mark.parametrize(
    "record",
    [
        b'{"prefix":"/a/"}',
        b'{"prefix":"/a/","mode":"sometimes","policy":"deny"}',
        b'{"prefix":"/a/","mode":"eventual","policy":["deny"]}',
        b'{"prefix":"/a/","mode":"eventual","policy":"refetch","default":7}',
        b'{"prefix":"/a/","mode":"eventual","policy":"refetch","of a newer program":1}',
        b'{"prefix_base64":"L2Ev","mode":null}',
    ],
)
def test_malformed_record_makes_its_prefix_strict_and_fail_closed(record: bytes) -> None:
    regions = Regions.of([(region_key("broken"), record)])
    assert regions.is_strict(b"/a/x")
    assert regions.region_of(b"/a/x").policy is Policy.FAIL_CLOSED
    assert "the region 'broken' is taken for strict" in regions.problems[0]


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"[" * 100_000,
        b'{"prefix":7}',
        b'{"prefix_base64":"*"}',
        b'{"mode":"strict"}',
        b'{"prefix":"","prefix_base64":""}',
        b'{"prefix":"palisade/catalog/permissions/","mode":"eventual","policy":"refetch"}',
    ],
)
def test_record_without_a_readable_prefix_is_ignored_and_reported(record: bytes) -> None:
    regions = Regions.of([(region_key("broken"), record), (region_key("b"), pack_region(strict("b", b"/b/")))])
    assert len(regions.problems) == 1
    assert regions.problems[0].startswith("the region 'broken' is ignored")
    assert regions.is_strict(b"/b/")
    assert regions.region_of(b"palisade/catalog/permissions/x").policy is Policy.DENY


def test_duplicate_prefix_is_strict_if_one_region_is() -> None:
    for first, second in ((strict("a", b"/a/"), eventual("b", b"/a/")), (eventual("a", b"/a/"), strict("b", b"/a/"))):
        regions = of(first, second)
        assert regions.is_strict(b"/a/x")
        assert regions.problems == ("the regions a and b have the same prefix: remove one",)


def test_changing_regions_are_strict_by_the_old_or_the_new_rule() -> None:
    before, after = of(strict("a", b"/a/"), eventual("b", b"/b/")), of(eventual("a", b"/a/"), strict("b", b"/b/"))
    both = either(before, after)
    assert [both.is_strict(key) for key in (b"/a/x", b"/b/x", b"/c/x")] == [True, True, False]
    assert [both.has_strict(key, key + b"z") for key in (b"/a/", b"/b/", b"/c/")] == [True, True, False]
    assert both.region_of(b"/a/x").policy is Policy.REFETCH
    assert either(before, before) is before


def test_prefix_end_is_the_first_key_after_the_prefix() -> None:
    assert [prefix_end(prefix) for prefix in (b"a", b"a\xff", b"\xff\xff", b"")] == [b"b", b"b", None, None]


@pytest.mark.parametrize(
    ("key", "name", "policy"),
    [
        (b"palisade/catalog/permissions/users/alice", "palisade.permissions", Policy.DENY),
        (b"palisade/catalog/ttl/plant", "palisade.ttl", Policy.SAFE_DEFAULT),
        (b"palisade/catalog/devices/plant/line1", "palisade.devices", Policy.REFETCH),
        (b"palisade/catalog/templates/pump", "palisade.templates", Policy.REFETCH),
        (b"palisade/catalog/template-paths/plant/line1", "palisade.template-paths", Policy.REFETCH),
        (b"palisade/catalog/views/plant/v", "palisade.views", Policy.REFETCH),
        (b"palisade/catalog/tables/plant/t", "palisade", Policy.FAIL_CLOSED),
        (b"palisade/catalog/resources/function/f", "palisade", Policy.FAIL_CLOSED),
    ],
)
def test_catalog_has_the_policies_of_seed_000(key: bytes, name: str, policy: Policy) -> None:
    """Device schemas, templates and views are fetched again from the quorum; table schemas fail closed (issue 17)."""
    region = Regions.of([]).region_of(key)
    assert (region.name, region.mode, region.policy) == (name, Mode.STRICT, policy)
