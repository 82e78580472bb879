"""Regions are changed through the real write path, and answered when everything before is released (issue 16)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from palisade.metastore.errors import InvalidRequest
from palisade.metastore.requests import Put
from palisade.service.callers import UNRESTRICTED
from palisade.service.regions import RegionAdmin
from palisade.vault.regions import Mode, Policy, Region, pack_region, region_key
from palisade.wire.fencing_errors import ReservedKey
from tests.support.strict_service import StrictService
from tests.support.waiting import until

EVENTUAL = Region("config", b"/config/", Mode.EVENTUAL, Policy.FAIL_CLOSED)
STRICT = Region("config", b"/config/", Mode.STRICT, Policy.FAIL_CLOSED)


async def put(admin: RegionAdmin) -> int:
    return await admin.put(STRICT)


async def change(admin: RegionAdmin) -> int:
    return (await admin.change("config", {"mode": Mode.STRICT}))[0]


async def put_packed(admin: RegionAdmin) -> int:
    return await admin.put_packed("config", pack_region(STRICT))


async def delete(admin: RegionAdmin) -> int:
    return await admin.delete("config")


CHANGES = pytest.mark.parametrize("act", [put, change, put_packed, delete], ids=lambda act: act.__name__)
Act = Callable[[RegionAdmin], Awaitable[int]]


@CHANGES
async def test_region_is_changed_as_the_cluster_itself(act: Act) -> None:
    """Its row is the cluster's own: a write of it by a user is refused."""
    service = StrictService()
    admin = RegionAdmin(service.key_values)
    await admin.put(EVENTUAL)
    revision = await act(admin)
    row = service.store.get(region_key("config"))
    assert (None if row is None else row.value) == (None if act is delete else pack_region(STRICT))
    assert service.store.revision == revision
    with pytest.raises(ReservedKey):
        await service.key_values.write(Put(region_key("config"), pack_region(STRICT)), caller=UNRESTRICTED)


@CHANGES
async def test_change_of_a_region_is_answered_once_every_change_so_far_is_released(act: Act) -> None:
    """A node that did not know the region yet has answered a write in it at its commit: after the answer to the change,
    no node shows what that write has replaced."""
    service = StrictService()
    admin = RegionAdmin(service.key_values)
    await admin.put(EVENTUAL)
    await admin.put(Region("other", b"/other/", Mode.STRICT, Policy.FAIL_CLOSED))
    service.releases = False
    changing = asyncio.ensure_future(act(admin))
    before = service.store.revision
    await until(lambda: service.store.revision > before)
    changed = service.store.revision
    later = service.apply(Put(b"/other/k", b"written elsewhere"))
    service.release(changed)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not changing.done()
    service.release(later)
    assert await changing == changed


async def test_region_with_the_prefix_of_another_one_is_refused() -> None:
    admin = RegionAdmin(StrictService().key_values)
    await admin.put(EVENTUAL)
    with pytest.raises(InvalidRequest, match=r"config.*prefix"):
        await admin.put(Region("again", b"/config/", Mode.STRICT, Policy.FAIL_CLOSED))
