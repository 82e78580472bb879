"""The error that the caller of a node gets when a component fails."""

from __future__ import annotations

import errno

import pytest

from palisade.node.component_adapters import cause_of_failure
from palisade.raftgroup.errors import NodeFailed
from palisade.recovery.lifecycle import ComponentFailed, LifecyclePhase


def test_cause_of_failure_keeps_its_own_cause() -> None:
    """The reason why the journal could not be written was lost, and with it whether the disk was full."""
    full = OSError(errno.ENOSPC, "No space left on device")
    stopped = NodeFailed("the journal can't be written")
    stopped.__cause__ = full
    with pytest.raises(NodeFailed) as raised, cause_of_failure():
        raise ComponentFailed("group", LifecyclePhase.RUN, stopped)
    assert raised.value is stopped
    assert raised.value.__cause__ is full
