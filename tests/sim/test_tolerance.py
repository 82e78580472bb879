"""What a fault excuses: a full disk one way of dying, not every one."""

from __future__ import annotations

import errno

import pytest

from metastore.store_errors import StoreFailed
from raftgroup.errors import NodeFailed
from tests.sim.tolerance import is_full

FULL = OSError(errno.ENOSPC, "No space left on device")


def because(error: Exception, *causes: Exception) -> Exception:
    for effect, cause in zip((error, *causes), causes, strict=False):
        effect.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "excused"),
    [
        (because(NodeFailed("the journal"), FULL), True),
        (because(NodeFailed("this node stopped itself"), StoreFailed("the store"), FULL), True),
        (FULL, False),
        (because(NodeFailed("the journal"), ZeroDivisionError()), False),
        (because(NodeFailed("the journal"), OSError(errno.EIO, "I/O error")), False),
        (because(ZeroDivisionError(), FULL), False),
        (NodeFailed("it starts on what it has lost"), False),
    ],
)
def test_a_full_disk_excuses_who_says_that_it_is_full(error: Exception, excused: bool) -> None:
    assert is_full(error) is excused
