"""What an error means to a client: refused (certainly not executed) or unknown (may still be executed). Any other is a
bug."""

from __future__ import annotations

from typing import Any

from palisade.metastore.errors import Compacted, MetastoreError
from palisade.raftgroup.errors import NodeFailed, OutcomeUnknown, Unavailable
from palisade.vault.errors import Denied, Fenced, Pending, ReadRefused, VaultError
from palisade.wire.error_codes import error_of
from palisade.wire.fencing_errors import ReadPending, ReleasePending
from tests.sim.seen import Outcome, Refused, Unknown, Why

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


def problem_in(body: dict[str, Any]) -> Exception:
    """The problem in a response of the HTTP API."""
    return error_of(body["code"], body["detail"], body.get("minimal_revision") or body.get("revision") or 0)


def outcome_of(error: Exception) -> Outcome:
    """Raises the error itself if clients must not get it."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ReleasePending) and error.revision:
        return Unknown(text, error.revision)
    if isinstance(error, OutcomeUnknown | NodeFailed):
        return Unknown(text)
    for kind, why in REFUSALS:
        if isinstance(error, kind):
            return Refused(why, text)
    raise error
