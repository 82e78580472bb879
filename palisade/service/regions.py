"""The regions of a cluster, read and changed: what HTTP, the stream and the command line share.

A change is answered when every node treats the prefix so, as any other strict write is; and when whatever was written
before that is released. Some of it was answered at its commit, by nodes that did not know yet: from this answer on
nobody reads what it replaced either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

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
    """As they are at LM."""
    rows = store.range(Range(REGIONS_PREFIX, REGIONS_END)).kvs
    return Regions.of((kv.key, kv.value) for kv in rows)


def view_of(regions: Regions, revision: int) -> dict[str, Any]:
    """Shape `Regions`: all of them, the built in ones first; what is stored and makes no sense is told as well."""
    shapes = [region_shape(each) for each in regions.all]
    return {"revision": revision, "regions": shapes, "problems": list(regions.problems)}


def named(regions: Regions, name: str) -> Region:
    """Raises KeyNotFound."""
    found = next((each for each in regions.all if each.name == name), None)
    if found is None:
        raise KeyNotFound(f"there is no region {name[:64]}")
    return found


class RegionReader(Protocol):
    """What can be asked of any node that keeps a vault."""

    async def view(self) -> dict[str, Any]: ...
    async def get(self, name: str) -> Region: ...


class FencedRegions:
    """The regions as a node that is no member has them, read through its fence: so no policy of before is told."""

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
        """The revision. Raises InvalidRequest."""
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
                f"region {other.name} has the prefix {region.prefix!r} already: change or delete that one"
            )

    async def change(self, name: str, fields: Mapping[str, Any]) -> tuple[int, Region]:
        """What is not in `fields` (`prefix`, `mode`, `policy`, `default`) stays as it is, also where others change the
        region meanwhile. Raises KeyNotFound, InvalidRequest."""
        for _ in range(CHANGE_TRIES):
            region, modified = await self._stored(name)
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
        raise InvalidRequest(f"the region {name} is being changed by others all the time: look at it, and try again")

    async def _stored(self, name: str) -> tuple[Region, int]:
        """And the revision of its last change. Raises KeyNotFound, InvalidRequest."""
        if named((await self._read())[0], name).built_in:
            raise InvalidRequest(f"the region {name} is built in, and stays as it is")
        read = await self._service.range(Range(region_key(name)), caller=THIS_NODE)
        if not read.kvs:
            raise KeyNotFound(f"there is no region {name[:64]}")
        try:
            return unpack_region(name, read.kvs[0].value), read.kvs[0].mod_revision
        except ValueError as error:
            raise InvalidRequest(f"the record of region {name} makes no sense ({error}): set it as a whole") from None

    async def put_packed(self, name: str, packed: bytes) -> int:
        """As it is stored. Raises InvalidRequest."""
        try:
            region = unpack_region(name, packed)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        return await self.put(region)

    async def delete(self, name: str) -> int:
        """The revision. Raises KeyNotFound, InvalidRequest."""
        if not 0 < len(name.encode()) <= 64:
            raise InvalidRequest("the name of a region has 1 to 64 bytes")
        result = await self._service.write(DeleteRange(region_key(name)), caller=THIS_NODE)
        if not result.deleted:
            raise KeyNotFound(f"there is no region {name} that can be deleted; built-in regions stay")
        await self._service.all_released()
        return int(result.revision)
