"""What an error means to a client: refused (certainly not executed) or unknown (may still be executed). Any other is a
bug."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from palisade.metastore.errors import Compacted, MetastoreError
from palisade.metastore.requests import Range
from palisade.raftgroup.errors import NodeFailed, OutcomeUnknown, Unavailable
from palisade.vault.errors import Denied, Fenced, Pending, ReadRefused, VaultError
from palisade.wire.error_codes import error_of
from palisade.wire.fencing_errors import ReadPending, ReleasePending
from tests.sim.seen import Ok, Outcome, Refused, Request, Unknown, Why

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

Errors = tuple[type[Exception], ...]


async def outcome_from(
    response: Awaitable[Any],
    request: Request,
    *,
    refused: Errors = (ConnectionRefusedError,),
    lost: Errors = (ConnectionError, TimeoutError),
) -> Outcome:
    """`refused`: errors without a connection; `lost`: those without a response. A read without one counts as
    refused."""
    outcome: Outcome
    try:
        return Ok(await response)
    except refused as error:
        return Refused(Why.UNAVAILABLE, str(error))
    except lost as error:
        outcome = Unknown(f"{type(error).__name__}: {error}")
    except EXPECTED as error:
        outcome = outcome_of(error)
    if isinstance(request, Range) and isinstance(outcome, Unknown):
        return Refused(Why.UNAVAILABLE, outcome.text)
    return outcome


def kind_of(outcome: Outcome) -> str:
    return f"Refused {outcome.why.value}" if isinstance(outcome, Refused) else type(outcome).__name__


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
