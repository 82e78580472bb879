"""The error that the caller of a node gets when a component fails."""

from __future__ import annotations

import errno

import pytest

from palisade.node.component_adapters import Background, cause_of_failure
from palisade.raftgroup.errors import MemberRemoved, NodeFailed
from palisade.raftgroup.removal import FAREWELL_S
from palisade.recovery.lifecycle import ComponentFailed, LifecyclePhase
from palisade.wire.segment_errors import FolderUnreadable
from tests.support.simulation import Simulation


def test_cause_of_failure_keeps_its_own_cause() -> None:
    """The reason why the journal could not be written was lost, and with it whether the disk was full."""
    full = OSError(errno.ENOSPC, "No space left on device")
    stopped = NodeFailed("the journal can't be written")
    stopped.__cause__ = full
    with pytest.raises(NodeFailed) as raised, cause_of_failure():
        raise ComponentFailed("group", LifecyclePhase.RUN, stopped)
    assert raised.value is stopped
    assert raised.value.__cause__ is full


def test_cause_of_failure_of_a_component_within_another_is_found() -> None:
    """The components on the vault are within that of the topology: a data node whose folder of segments cannot be read
    ended with a traceback."""
    unreadable = FolderUnreadable("cannot read the folder of the segments")
    inner = ComponentFailed("segments", LifecyclePhase.START, unreadable)
    with pytest.raises(FolderUnreadable) as raised, cause_of_failure():
        raise ComponentFailed("topology", LifecyclePhase.START, inner)
    assert raised.value is unreadable


def test_component_that_meets_the_removal_first_leaves_the_end_to_the_group() -> None:
    """A client that asked a member for its own removal would lose the answer (FAREWELL_S of raftgroup/removal.py)."""
    simulation = Simulation(1)
    process = simulation.process("n1")
    ended: list[float] = []

    async def meets_it() -> None:
        raise MemberRemoved("n1 was removed")

    async def run() -> None:
        began = process.now()
        with pytest.raises(MemberRemoved):
            await Background(meets_it).run()
        ended.append(process.now() - began)

    process.start(run())
    simulation.run_for(5 * FAREWELL_S)
    simulation.close()
    (after_s,) = ended
    assert after_s > FAREWELL_S
