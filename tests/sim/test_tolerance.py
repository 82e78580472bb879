"""What a fault excuses: a full disk one kind of end, not every one."""

from __future__ import annotations

import errno

import pytest

from palisade.metastore.store_errors import StoreFailed
from palisade.raftgroup.errors import NodeFailed
from palisade.recovery.decision import RefusalReason, Refuse
from palisade.recovery.errors import RecoveryRefused
from palisade.recovery.lifecycle import ComponentFailed, LifecyclePhase
from palisade.vault.errors import VaultUnusable
from palisade.wire.topology_errors import NodeRefused
from tests.sim.tolerance import is_failing, is_full, is_refusal

FULL = OSError(errno.ENOSPC, "No space left on device")
FAILS = OSError(errno.EIO, "Input/output error")


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
def test_full_disk_excuses_a_node_that_reports_it(error: Exception, excused: bool) -> None:
    assert is_full(error) is excused


def test_disk_that_fails_and_one_that_is_full_do_not_excuse_each_other() -> None:
    for full, failing in (
        (because(NodeFailed("the journal"), FULL), because(NodeFailed("the journal"), FAILS)),
        (because(VaultUnusable("the vault"), FULL), because(VaultUnusable("the vault"), FAILS)),
    ):
        assert (is_full(full), is_failing(full)) == (True, False)
        assert (is_full(failing), is_failing(failing)) == (False, True)
    assert not is_failing(because(ZeroDivisionError(), FAILS))


OLDER = RecoveryRefused(Refuse(RefusalReason.OLDER_HISTORY, "The vault is of generation 1", "reset it"))


@pytest.mark.parametrize(
    ("error", "reason", "excused"),
    [
        (OLDER, RefusalReason.OLDER_HISTORY, True),
        (ComponentFailed("fencing", LifecyclePhase.START, OLDER), RefusalReason.OLDER_HISTORY, True),
        (OLDER, RefusalReason.FOREIGN_NODE, False),
        (ComponentFailed("fencing", LifecyclePhase.START, TypeError("a bug")), RefusalReason.OLDER_HISTORY, False),
        (NodeRefused("it is of another cluster"), RefusalReason.FOREIGN_CLUSTER, True),
        (NodeRefused("another node goes by that name"), RefusalReason.OLDER_HISTORY, False),
    ],
)
def test_invalid_vault_excuses_a_node_that_refuses_it(error: Exception, reason: RefusalReason, excused: bool) -> None:
    assert is_refusal(error, reason) is excused
