"""Regions: which keys are strict, and what a read gets while the vault must not answer (F7). Pure.

A region is a prefix with a mode and a policy; the longest matching prefix is the region of a key. Regions are ordinary
keys of the metadata store, below `palisade/regions/`, so every vault has them, ordered with all other changes. The
regions below `palisade/` are built in and cannot be changed. A change of a region takes effect once it is released.

An unreadable record makes its prefix strict and fail closed: a mistake costs availability, never a stale read.
"""

from __future__ import annotations

import enum
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

PALISADE = b"palisade/"
REGIONS_PREFIX, REGIONS_END = b"palisade/regions/", b"palisade/regions0"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
RESERVED = "palisade"
PREFIX_BYTES_MAX = 4096
DEFAULT_BYTES_MAX = 65536
INFINITE_TTL = b'{"ttl_ms":null}'
"""The rule that deletes nothing. A fenced reader gets it for every rule (seed 000, TTL)."""


class Mode(enum.StrEnum):
    STRICT = "strict"
    """A change is served only after every node has stopped serving the value it replaced: reads are linearizable."""
    EVENTUAL = "eventual"
    """A change is served as soon as the vault has applied it, and acknowledged when it is committed."""


class Policy(enum.StrEnum):
    """What a read gets while the vault must not be trusted."""

    FAIL_CLOSED = "fail_closed"
    """A retryable error."""
    REFETCH = "refetch"
    """The quorum's answer, by the reader's `fetch`; a retryable error if that fails."""
    DENY = "deny"
    """Like REFETCH; if that fails, an error that means denial."""
    SAFE_DEFAULT = "safe_default"
    """The default of the region."""


@dataclass(frozen=True, slots=True)
class Region:
    """`default`: the answer of SAFE_DEFAULT. `built_in`: not stored, and cannot be changed."""

    name: str
    prefix: bytes
    mode: Mode
    policy: Policy
    default: bytes = b""
    built_in: bool = False


BUILT_IN = (
    Region("palisade", PALISADE, Mode.STRICT, Policy.FAIL_CLOSED, built_in=True),
    Region("palisade.permissions", b"palisade/catalog/permissions/", Mode.STRICT, Policy.DENY, built_in=True),
    Region("palisade.ttl", b"palisade/catalog/ttl/", Mode.STRICT, Policy.SAFE_DEFAULT, INFINITE_TTL, built_in=True),
    *(
        Region(f"palisade.{name}", f"palisade/catalog/{name}/".encode(), Mode.STRICT, Policy.REFETCH, built_in=True)
        for name in ("devices", "templates", "template-paths", "views")
    ),
)
"""Seed 000: permissions deny, TTL rules delete nothing, device schemas with templates and views are fetched again from
the quorum, and everything else, table schemas among them, fails closed."""
OTHER = Region("", b"", Mode.EVENTUAL, Policy.FAIL_CLOSED, built_in=True)
"""The region of all other keys."""


@dataclass(frozen=True, slots=True)
class Regions:
    """All regions as of one revision. `problems`: errors in single records, for display."""

    all: tuple[Region, ...]
    problems: tuple[str, ...]
    strict_prefixes: tuple[bytes, ...]
    _longest_first: tuple[Region, ...]
    _holes: bool
    """Whether an eventual region lies inside a strict one; then a strict prefix alone does not make a key strict."""
    _before: Regions | None = None

    @staticmethod
    def of(rows: Iterable[tuple[bytes, bytes]]) -> Regions:
        """From keys and values of the metadata store; keys that are not below REGIONS_PREFIX are ignored."""
        found: list[Region] = []
        problems: list[str] = []
        for key, value in sorted(rows):
            if is_region_key(key):
                region, problem = _read(key, value)
                found += [region] if region is not None else []
                problems += [problem] if problem else []
        return _regions(found, problems)

    @property
    def prefixes_decide(self) -> bool:
        """Whether a key is strict exactly if it begins with one of `strict_prefixes`."""
        return self._before is None and not self._holes

    def region_of(self, key: bytes) -> Region:
        """The region with the longest matching prefix; OTHER if there is none."""
        for region in self._longest_first:
            if key.startswith(region.prefix):
                return region
        return OTHER

    def is_strict(self, key: bytes) -> bool:
        if self._before is not None and self._before.is_strict(key):
            return True
        if not key.startswith(self.strict_prefixes):
            return False
        return not self._holes or self.region_of(key).mode is Mode.STRICT

    def has_strict(self, start: bytes, end: bytes | None) -> bool:
        """Whether a key with start <= key < end (None: no upper bound) may be strict."""
        if self._before is not None and self._before.has_strict(start, end):
            return True
        return any(_meets(prefix, start, end) for prefix in self.strict_prefixes)

    def all_strict(self, start: bytes, end: bytes | None) -> bool:
        """Whether every key with start <= key < end (None: no upper bound) is strict."""
        if self._before is not None and self._before.all_strict(start, end):
            return True
        region = self.region_of(start)
        last = prefix_end(region.prefix)
        if region.mode is not Mode.STRICT or (last is not None and (end is None or end > last)):
            return False
        inside = (other for other in self.all if len(other.prefix) > len(region.prefix))
        return all(other.mode is Mode.STRICT for other in inside if _meets(other.prefix, start, end))

    def covering(self, start: bytes, end: bytes | None) -> Region | None:
        """The region that contains all keys of the range; None if there may be several."""
        region = self.region_of(start)
        last = prefix_end(region.prefix)
        if last is not None and (end is None or end > last):
            return None
        inside = (other.prefix for other in self.all if len(other.prefix) > len(region.prefix))
        return None if any(_meets(prefix, start, end) for prefix in inside) else region


def either(before: Regions, after: Regions) -> Regions:
    """`after`, but keys that are strict in `before` stay strict. Used until every node has the change."""
    if before is after:
        return after
    return Regions(after.all, after.problems, after.strict_prefixes, after._longest_first, after._holes, before)


def _regions(found: Iterable[Region], problems: list[str]) -> Regions:
    by_prefix: dict[bytes, Region] = {}
    for region in (*BUILT_IN, *found):
        known = by_prefix.get(region.prefix)
        if known is not None:
            problems.append(f"the regions {known.name} and {region.name} have the same prefix: remove one")
            region = known if known.mode is Mode.STRICT else region
        by_prefix[region.prefix] = region
    everything = tuple(by_prefix.values())
    strict = tuple(region.prefix for region in everything if region.mode is Mode.STRICT)
    holes = any(region.mode is Mode.EVENTUAL and region.prefix.startswith(strict) for region in everything)
    longest = tuple(sorted(everything, key=lambda region: len(region.prefix), reverse=True))
    return Regions(everything, tuple(problems), strict, longest, holes)


def _read(key: bytes, value: bytes) -> tuple[Region | None, str]:
    name = key[len(REGIONS_PREFIX) :].decode(errors="replace")
    try:
        region = unpack_region(name, value)
        check_region(region)
        return region, ""
    except ValueError as error:
        prefix = _prefix_of(value)
        if prefix is None or prefix.startswith(PALISADE):
            return None, f"the region {name!r} is ignored: {error}"
        strict = Region(name, prefix, Mode.STRICT, Policy.FAIL_CLOSED)
        return strict, f"the region {name!r} is taken for strict and fail closed: {error}"


def check_region(region: Region) -> None:
    """Raises ValueError with the remedy unless users may store this region."""
    if not NAME.fullmatch(region.name) or region.name.startswith(RESERVED):
        raise ValueError(
            f"invalid region name {region.name!r}: use 1 to 64 of a-z 0-9 . _ -, not beginning with {RESERVED!r}"
        )
    if region.prefix.startswith(PALISADE):
        raise ValueError("the keys below palisade/ are in built-in regions: choose another prefix")
    if len(region.prefix) > PREFIX_BYTES_MAX:
        raise ValueError(f"a prefix has at most {PREFIX_BYTES_MAX} bytes, not {len(region.prefix)}")
    if len(region.default) > DEFAULT_BYTES_MAX:
        raise ValueError(f"a default has at most {DEFAULT_BYTES_MAX} bytes, not {len(region.default)}")
    if region.default and region.policy is not Policy.SAFE_DEFAULT:
        raise ValueError(f"only {Policy.SAFE_DEFAULT} has a default: leave it out, or change the policy")


def is_region_key(key: bytes) -> bool:
    return key.startswith(REGIONS_PREFIX)


def region_key(name: str) -> bytes:
    return REGIONS_PREFIX + name.encode()


def pack_region(region: Region) -> bytes:
    """Canonical: equal regions have equal bytes."""
    shape = {**_bytes_shape("prefix", region.prefix), "mode": region.mode.value, "policy": region.policy.value}
    if region.policy is Policy.SAFE_DEFAULT:
        shape |= _bytes_shape("default", region.default)
    return json.dumps(shape, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def unpack_region(name: str, value: bytes) -> Region:
    """Raises ValueError with what is wrong."""
    shape = _shape_of(value)
    unknown = sorted(shape.keys() - {"prefix", "prefix_base64", "mode", "policy", "default", "default_base64"})
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}")
    prefix = _bytes_of(shape, "prefix")
    if prefix is None:
        raise ValueError("it has no prefix")
    mode, policy = _choice(Mode, shape.get("mode")), _choice(Policy, shape.get("policy"))
    return Region(name, prefix, Mode(mode), Policy(policy), _bytes_of(shape, "default") or b"")


def _choice(kind: type[enum.StrEnum], value: object) -> str:
    if not isinstance(value, str) or value not in list(kind):
        raise ValueError(f"{kind.__name__.lower()} is {str(value)[:40]!r}, and must be one of {', '.join(kind)}")
    return value


def _shape_of(value: bytes) -> dict[str, Any]:
    try:
        shape = json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(shape, dict):
        raise ValueError("it is no JSON object")
    return shape


def _bytes_shape(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}


def _bytes_of(shape: dict[str, Any], name: str) -> bytes | None:
    text, packed = shape.get(name), shape.get(f"{name}_base64")
    if text is not None and packed is not None:
        raise ValueError(f"it has {name} and {name}_base64: leave one out")
    try:
        if isinstance(text, str):
            return text.encode()
        if isinstance(packed, str):
            return b64decode(packed, validate=True)
    except ValueError:
        raise ValueError(f"its {name} is neither text nor base64") from None
    if text is None and packed is None:
        return None
    raise ValueError(f"its {name} is neither text nor base64")


def _prefix_of(value: bytes) -> bytes | None:
    try:
        return _bytes_of(_shape_of(value), "prefix")
    except ValueError:
        return None


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key after all keys with this prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _meets(prefix: bytes, start: bytes, end: bytes | None) -> bool:
    behind = prefix_end(prefix)
    return (end is None or prefix < end) and (behind is None or start < behind)
