"""Which self-inflicted ends of a node a fault excuses. Pure: any other end is a bug (`stays up`)."""

from __future__ import annotations

import errno

from palisade.metastore.store_errors import StoreFailed
from palisade.raftgroup.errors import NodeFailed
from palisade.recovery.decision import RefusalReason
from palisade.recovery.errors import RecoveryRefused
from palisade.recovery.lifecycle import ComponentFailed
from palisade.vault.errors import VaultError
from palisade.wire.topology_errors import NodeRefused

WHILE_JOINING = (RefusalReason.FOREIGN_CLUSTER,)
"""For these the cluster itself may refuse a node."""
SAYS_SO = (NodeFailed, StoreFailed, VaultError)
"""The errors by which journal, store and vault report that they cannot be written."""


def is_refusal(error: BaseException, reason: RefusalReason) -> bool:
    """Whether a node stopped itself because its vault must be refused for that reason, and no other."""
    cause = error.cause if isinstance(error, ComponentFailed) else error
    if isinstance(cause, RecoveryRefused):
        return cause.refusal.reason is reason
    return isinstance(cause, NodeRefused) and reason in WHILE_JOINING


def is_full(error: BaseException) -> bool:
    """Whether a node stopped itself because its disk was full, and reports that."""
    return _said(error) == errno.ENOSPC


def is_failing(error: BaseException) -> bool:
    """Whether a node stopped itself because its disk failed, and reports that."""
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
