"""Which ends of a node by itself a fault excuses. Pure: whatever else ends a node is a bug (`stays up`)."""

from __future__ import annotations

import errno

from palisade.metastore.store_errors import StoreFailed
from palisade.raftgroup.errors import NodeFailed
from palisade.recovery.decision import RefusalReason
from palisade.recovery.errors import RecoveryRefused
from palisade.recovery.lifecycle import ComponentFailed
from palisade.vault.errors import VaultError
from palisade.wire.topology_errors import NodeRefused

AT_THE_DOOR = (RefusalReason.FOREIGN_CLUSTER,)
"""For these the cluster itself may not take a node."""
SAYS_SO = (NodeFailed, StoreFailed, VaultError)
"""How journal, store and vault say that they can't be written."""


def is_refusal(error: BaseException, reason: RefusalReason) -> bool:
    """Whether a node stopped itself since its vault is one to refuse for that, and for nothing else."""
    cause = error.cause if isinstance(error, ComponentFailed) else error
    if isinstance(cause, RecoveryRefused):
        return cause.refusal.reason is reason
    return isinstance(cause, NodeRefused) and reason in AT_THE_DOOR


def is_full(error: BaseException) -> bool:
    """Whether a node stopped itself since its disk took no more, and says that."""
    return _said(error) == errno.ENOSPC


def is_failing(error: BaseException) -> bool:
    """Whether a node stopped itself since its disk failed, and says that."""
    return _said(error) == errno.EIO


def _said(error: BaseException) -> int | None:
    if not isinstance(error, SAYS_SO):
        return None
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, OSError):
            return cause.errno
        cause = cause.__cause__
    return None
