"""Which entries of a node's log are faults of the node; no process is needed."""

from __future__ import annotations

import pytest

from tests.faults.breaks import NO_ROOM
from tests.support.node_log import faults_in

INFO = "2026-11-22 21:36:08,864 INFO palisade.node.member: serving: node=n1\n"
FULL = (
    "2026-11-22 21:36:08,865 ERROR palisade.node.component_adapters: component group failed: "
    "the journal in /d/n1/raft can't be written: mdb_txn_commit: No space left on device. "
    "Nothing acknowledged is lost: make room on the disk\n"
)
NOT_STAGED = (
    "2026-11-22 21:36:08,866 ERROR palisade.node.fencing.leader_connection: staged changes not stored: node=n1 "
    "error=the vault in /d/n1/vault can't be used: mdb_put: No space left on device. Its content is unchanged\n"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1\nKeyError: 7\n'
LAST = "palisade node: the journal in /d/n1/raft can't be written\n"
EXPLAINED = NO_ROOM.format(id="n1", folder="/d/n1")


@pytest.mark.parametrize(
    ("log", "faults"),
    [
        (INFO, 0),
        (INFO + FULL + INFO, 0),
        (INFO + FULL + LAST + INFO, 0),
        (INFO + NOT_STAGED + INFO, 0),
        (NOT_STAGED.replace("node=n1", "node=n2"), 1),
        (INFO + FULL + TRACEBACK + INFO, 1),
        (INFO + TRACEBACK + FULL, 1),
        (TRACEBACK, 1),
        (FULL.replace("/d/n1/", "/d/n2/") + INFO, 1),
        (FULL.replace("No space left on device", "Permission denied"), 1),
        (
            FULL.replace(
                "palisade.node.component_adapters: component group failed",
                "asyncio: Task was destroyed but it is pending!",
            ),
            1,
        ),
    ],
)
def test_only_the_complete_explained_entry_is_excused(log: str, faults: int) -> None:
    assert len(faults_in(log, [EXPLAINED])) == faults, faults_in(log, [EXPLAINED])


def test_unexplained_errors_are_faults() -> None:
    assert faults_in(INFO + FULL) == [FULL]
