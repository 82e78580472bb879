"""The regions of a cluster, read and changed: what HTTP, the stream and the command line share.

A change is answered when every node treats the prefix so, as any other strict write is; and when whatever was written
before that is released. Some of it was answered at its commit, by nodes that did not know yet: from this answer on
nobody reads what it replaced either.
"""

from __future__ import annotations

from typing import Any

from metastore.errors import InvalidRequest, KeyNotFound
from metastore.machine import MetaStore
from metastore.requests import DeleteRange, Put, Range
from node.fencing.region_shapes import region_shape
from node.service import Service
from vault.regions import (
    REGIONS_END,
    REGIONS_PREFIX,
    Region,
    Regions,
    check_region,
    pack_region,
    region_key,
    unpack_region,
)


def regions_of(store: MetaStore) -> Regions:
    """As they are at LM."""
    rows = store.range(Range(REGIONS_PREFIX, REGIONS_END)).kvs
    return Regions.of((kv.key, kv.value) for kv in rows)


class RegionBook:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def view(self) -> dict[str, Any]:
        """Shape `Regions`: all of them, the built in ones first; what is stored and makes no sense is told as well."""
        regions, revision = await self._read()
        shapes = [region_shape(each) for each in regions.all]
        return {"revision": revision, "regions": shapes, "problems": list(regions.problems)}

    async def get(self, name: str) -> Region:
        """Raises KeyNotFound."""
        regions, _ = await self._read()
        found = next((each for each in regions.all if each.name == name), None)
        if found is None:
            raise KeyNotFound(f"there is no region {name[:64]!r}")
        return found

    async def _read(self) -> tuple[Regions, int]:
        """Linearizable, as released."""
        read = await self._service.range(Range(REGIONS_PREFIX, REGIONS_END))
        return Regions.of((kv.key, kv.value) for kv in read.kvs), read.revision

    async def put(self, region: Region) -> int:
        """The revision. Raises InvalidRequest."""
        try:
            check_region(region)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        other = next((each for each in (await self._read())[0].all if each.prefix == region.prefix), None)
        if other is not None and other.name != region.name:
            raise InvalidRequest(
                f"region {other.name} has the prefix {region.prefix!r} already: change or delete that one"
            )
        result = await self._service.write(Put(region_key(region.name), pack_region(region)), own=True)
        await self._service.all_released()
        return int(result.revision)

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
        result = await self._service.write(DeleteRange(region_key(name)), own=True)
        if not result.deleted:
            raise KeyNotFound(f"there is no region {name!r} that could be deleted: the built in ones stay")
        await self._service.all_released()
        return int(result.revision)
