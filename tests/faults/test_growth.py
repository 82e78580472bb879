"""What counts as grown; the numbers of the vault are those that were seen (docs/bugs-found.md)."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.growth import Taken, grown

MIB = 1 << 20
FIRST = Taken(45 * MIB, 36, 8, {"raft": 0, "store": 4 * MIB, "vault": 3 * MIB}, frozenset({"node.json"}))


def test_what_grows_with_what_is_written_is_no_growth() -> None:
    disk = {"raft": 4 * MIB, "store": 40 * MIB, "vault": 20 * MIB}
    assert grown([FIRST, replace(FIRST, memory_bytes=60 * MIB, descriptors=40, threads=9, disk_bytes=disk)]) == []


def test_each_thing_that_grows_is_told() -> None:
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
