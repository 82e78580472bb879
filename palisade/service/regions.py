"""Reads and changes the regions of a cluster, for HTTP, the stream and the command line.

A change is acknowledged when every node treats the prefix accordingly, like any other strict write, and when all
earlier writes are released. Some of those were acknowledged at their commit by nodes that did not know the change yet:
from this acknowledgement on no node serves the values that they replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from palisade.base.key_text import key_text
from palisade.metastore.errors import InvalidRequest, KeyNotFound
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from palisade.metastore.state_machine import MetaStore
from palisade.service.callers import THIS_NODE
from palisade.service.fenced_reads import FencedReads
from palisade.service.key_values import KeyValues
from palisade.vault.regions import (
    REGIONS_END,
    REGIONS_PREFIX,
    Policy,
    Region,
    Regions,
    check_region,
    pack_region,
    region_key,
    unpack_region,
)
from palisade.wire.region_json import region_shape

CHANGE_TRIES = 10


def regions_of(store: MetaStore) -> Regions:
    """As of LM."""
    rows = store.range(Range(REGIONS_PREFIX, REGIONS_END)).kvs
    return Regions.of((kv.key, kv.value) for kv in rows)


def view_of(regions: Regions, revision: int) -> dict[str, Any]:
    """Shape `Regions`: all regions, the built-in ones first, including stored records that cannot be parsed."""
    shapes = [region_shape(each) for each in regions.all]
    return {"revision": revision, "regions": shapes, "problems": list(regions.problems)}


def named(regions: Regions, name: str) -> Region:
    """Raises KeyNotFound."""
    found = next((each for each in regions.all if each.name == name), None)
    if found is None:
        raise KeyNotFound(f"there is no region {name[:64]}")
    return found


def is_default_missing(region: Region, fields: Mapping[str, Any]) -> bool:
    """Whether a change to SAFE_DEFAULT gives no default: its reads would return an empty value by accident."""
    chosen = "default" in fields or region.policy is Policy.SAFE_DEFAULT
    return fields.get("policy") is Policy.SAFE_DEFAULT and not chosen


class RegionReader(Protocol):
    """Reads that every node with a vault serves."""

    async def view(self) -> dict[str, Any]: ...
    async def get(self, name: str) -> Region: ...


class FencedRegions:
    """The regions as a node that is no member has them, read through its fence: it never shows a replaced policy."""

    def __init__(self, reads: FencedReads) -> None:
        self._reads = reads

    async def view(self) -> dict[str, Any]:
        return view_of(*await self._read())

    async def get(self, name: str) -> Region:
        """Raises KeyNotFound."""
        return named((await self._read())[0], name)

    async def _read(self) -> tuple[Regions, int]:
        """Raises ReadRefused."""
        rows = await self._reads.range(REGIONS_PREFIX, REGIONS_END, 0)
        return Regions.of((item.key, item.value) for item in rows), rows.revision


class RegionAdmin:
    def __init__(self, service: KeyValues) -> None:
        self._service = service

    async def view(self) -> dict[str, Any]:
        """Shape `Regions`."""
        return view_of(*await self._read())

    async def get(self, name: str) -> Region:
        """Raises KeyNotFound."""
        return named((await self._read())[0], name)

    async def _read(self) -> tuple[Regions, int]:
        """Linearizable, as released."""
        read = await self._service.range(Range(REGIONS_PREFIX, REGIONS_END), caller=THIS_NODE)
        return Regions.of((kv.key, kv.value) for kv in read.kvs), read.revision

    async def put(self, region: Region) -> int:
        """Returns the revision. Raises InvalidRequest."""
        await self._check(region)
        result = await self._service.write(Put(region_key(region.name), pack_region(region)), caller=THIS_NODE)
        await self._service.all_released()
        return int(result.revision)

    async def _check(self, region: Region) -> None:
        try:
            check_region(region)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        other = next((each for each in (await self._read())[0].all if each.prefix == region.prefix), None)
        if other is not None and other.name != region.name:
            raise InvalidRequest(
                f"region {other.name} already has the prefix {key_text(region.prefix)}: change or delete it"
            )

    async def change(self, name: str, fields: Mapping[str, Any]) -> tuple[int, Region]:
        """Keeps the values of fields (`prefix`, `mode`, `policy`, `default`) that are not in `fields`, also under
        concurrent changes. Raises KeyNotFound, InvalidRequest."""
        for _ in range(CHANGE_TRIES):
            region, modified = await self._stored(name)
            if is_default_missing(region, fields):
                raise InvalidRequest(
                    f"region {name} has no default, which the policy safe_default needs: give one, which may be empty"
                )
            changed = replace(region, **fields)
            if changed.policy is not Policy.SAFE_DEFAULT and "default" not in fields:
                changed = replace(changed, default=b"")
            await self._check(changed)
            key = region_key(name)
            unchanged = Compare(key, CompareTarget.MOD, CompareResult.EQUAL, modified)
            result = await self._service.write(Txn((unchanged,), (Put(key, pack_region(changed)),)), caller=THIS_NODE)
            if result.succeeded:
                await self._service.all_released()
                return int(result.revision), changed
        raise InvalidRequest(
            f"region {name} was not changed: {CHANGE_TRIES} attempts met concurrent changes; read it and retry"
        )

    async def _stored(self, name: str) -> tuple[Region, int]:
        """The region and the revision of its last change. Raises KeyNotFound, InvalidRequest."""
        if named((await self._read())[0], name).built_in:
            raise InvalidRequest(f"region {name} is built in and cannot be changed")
        read = await self._service.range(Range(region_key(name)), caller=THIS_NODE)
        if not read.kvs:
            raise KeyNotFound(f"there is no region {name[:64]}")
        try:
            return unpack_region(name, read.kvs[0].value), read.kvs[0].mod_revision
        except ValueError as error:
            raise InvalidRequest(
                f"the stored record of region {name} is invalid ({error}): set all its fields"
            ) from None

    async def put_packed(self, name: str, packed: bytes) -> int:
        """As `put`, for a region in its stored form. Raises InvalidRequest."""
        try:
            region = unpack_region(name, packed)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        return await self.put(region)

    async def delete(self, name: str) -> int:
        """Returns the revision. Raises KeyNotFound, InvalidRequest."""
        if not 0 < len(name.encode()) <= 64:
            raise InvalidRequest("the name of a region must have 1 to 64 bytes")
        result = await self._service.write(DeleteRange(region_key(name)), caller=THIS_NODE)
        if not result.deleted:
            raise KeyNotFound(f"there is no region {name} that can be deleted; built-in regions stay")
        await self._service.all_released()
        return int(result.revision)
