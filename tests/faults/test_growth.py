"""What counts as growth; the numbers of the vault were observed (docs/bugs-found.md)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.growth import LOOK_S, Taken, grown, verified

MIB = 1 << 20
FIRST = Taken(45 * MIB, 36, 8, {"raft": 0, "store": 4 * MIB, "vault": 3 * MIB}, frozenset({"node.json"}))


def test_growth_with_written_data_is_accepted() -> None:
    disk = {"raft": 4 * MIB, "store": 40 * MIB, "vault": 20 * MIB}
    assert grown([FIRST, replace(FIRST, memory_bytes=60 * MIB, descriptors=40, threads=9, disk_bytes=disk)]) == []


def test_each_growing_resource_is_reported() -> None:
    for last, words in (
        (replace(FIRST, descriptors=60), "from 36 to 60 descriptors"),
        (replace(FIRST, threads=20), "from 8 to 20 threads"),
        (replace(FIRST, memory_bytes=200 * MIB), "from 45 to 200 MiB of memory"),
        (replace(FIRST, disk_bytes={"raft": 80 * MIB}), f"the log from 0 to {80 * MIB} bytes"),
        (
            replace(FIRST, disk_bytes={"store": 40 * MIB, "vault": 223 * MIB}),
            f"the vault has {223 * MIB} bytes, the store {40 * MIB}",
        ),
        (replace(FIRST, files=frozenset({"node.json", "x.part"})), "files are left behind: x.part"),
    ):
        assert grown([FIRST, FIRST, last]) == [words]


async def test_mark_of_a_running_verification_is_not_a_leftover(tmp_path: Path) -> None:
    """Observed after 1,000 restarts: stores of more than 64 MiB are served before they are verified."""
    mark = tmp_path / "UNVERIFIED"
    mark.touch()
    asyncio.get_running_loop().call_later(2 * LOOK_S, mark.unlink)
    await verified(tmp_path)
    assert not mark.exists()


async def test_store_that_is_never_verified_is_reported(tmp_path: Path) -> None:
    (tmp_path / "UNVERIFIED").touch()
    with pytest.raises(AssertionError, match=r"is not verified after 0\.1 s"):
        await verified(tmp_path, within_s=0.1)
