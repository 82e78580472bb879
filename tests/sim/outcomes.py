"""What an error means to a client: refused (surely not done) or unknown (may still be done). Anything else is a bug."""

from __future__ import annotations

from metastore.errors import Compacted, MetastoreError
from node.fencing.errors import ReadPending, ReleasePending
from raftgroup.errors import NodeFailed, OutcomeUnknown, Unavailable
from tests.sim.seen import Outcome, Refused, Unknown, Why
from vault.errors import Denied, Fenced, Pending, ReadRefused, VaultError

REFUSALS: tuple[tuple[type[Exception], Why], ...] = (
    (Unavailable, Why.UNAVAILABLE),
    (ReadPending, Why.PENDING),
    (Compacted, Why.COMPACTED),
    (MetastoreError, Why.REJECTED),
    (Fenced, Why.FENCED),
    (Pending, Why.PENDING),
    (Denied, Why.DENIED),
    (ReadRefused, Why.REJECTED),
    (VaultError, Why.UNAVAILABLE),
)
EXPECTED = (OutcomeUnknown, NodeFailed, ReleasePending, *(kind for kind, _ in REFUSALS))
"""`except EXPECTED as error: history.end(number, outcome_of(error))`."""


def outcome_of(error: Exception) -> Outcome:
    """Raises the error itself if it is none that a client may be told."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ReleasePending):
        return Unknown(text, error.revision)
    if isinstance(error, OutcomeUnknown | NodeFailed):
        return Unknown(text)
    for kind, why in REFUSALS:
        if isinstance(error, kind):
            return Refused(why, text)
    raise error
