"""Runs a command against the cluster, and turns every end into an exit code and one clear line.

0 done, 1 refused (nothing was changed), 2 wrong usage, 3 unavailable (nothing was changed; try again), 4 outcome
unknown (it may have been done).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from palisade.base.recurring_line import RecurringLine
from palisade.cli.printing import print_json

if TYPE_CHECKING:
    from palisade.client import Client
    from palisade.wire.credentials import Credentials

T = TypeVar("T")
REFUSED, USAGE, UNAVAILABLE, UNKNOWN = 1, 2, 3, 4
INTERRUPTED = 130
NOTICE_S = 1.0
"""How long a command waits in silence."""
SIGN_IN = "Give --user (with PALISADE_PASSWORD, or type it), or --token-file, which 'palisade login' writes"
NO_STREAM = "A node that is no member has no stream: palisade status, topology and recovery ask it with --at"


@dataclass(frozen=True, slots=True)
class Failure:
    """How a command ended badly. `code` is stable; `retry` says whether the same may succeed later."""

    exit_code: int
    code: str
    message: str
    retry: bool


def failure_of(error: BaseException, endpoints: list[str]) -> Failure | None:
    """What an error of the client means here; None for one that is a bug of ours."""
    from palisade.catalog.errors import CatalogError
    from palisade.metastore.errors import MetastoreError
    from palisade.raftgroup.errors import NodeFailed, OutcomeUnknown, RaftError, Unavailable
    from palisade.wire.auth_errors import AuthorizationError
    from palisade.wire.error_codes import refusal_of
    from palisade.wire.fencing_errors import ReleaseError, ReleasePending

    if isinstance(error, ReleaseError):
        done = isinstance(error, ReleasePending)
        return Failure(UNKNOWN if done else UNAVAILABLE, refusal_of(error).code, str(error), error.retry)
    if isinstance(error, OutcomeUnknown):
        return Failure(UNKNOWN, refusal_of(error).code, str(error), False)
    if isinstance(error, Unavailable | NodeFailed):
        text = f"{error}; 'palisade status' shows which nodes answer, 'palisade up' starts some"
        return Failure(UNAVAILABLE, refusal_of(error).code, text, True)
    if isinstance(error, MetastoreError | CatalogError):
        return Failure(REFUSED, refusal_of(error).code, str(error), error.retry)
    if isinstance(error, AuthorizationError):
        row = refusal_of(error)
        text = f"{error}. {SIGN_IN}" if row.status == 401 else str(error)
        return Failure(UNAVAILABLE if error.retry else REFUSED, row.code, text, error.retry)
    if isinstance(error, RaftError):
        return Failure(REFUSED, refusal_of(error).code, str(error), False)
    if isinstance(error, OSError | TimeoutError):
        hint = f"no node answers at {', '.join(endpoints)} ({error or type(error).__name__})"
        text = f"{hint}; start one with 'palisade up', or give --endpoints. {NO_STREAM}"
        return Failure(UNAVAILABLE, "unreachable", text, True)
    return None


@contextlib.asynccontextmanager
async def waiting(why: Callable[[], str]) -> AsyncIterator[None]:
    """Inside of it, stderr shows after a second what the command waits for, and again at growing intervals."""

    async def show() -> None:
        line, began = RecurringLine(first_s=2.0), time.monotonic()
        await asyncio.sleep(NOTICE_S)
        while True:
            text = line.holds(f"waiting: {why()}", time.monotonic() - began)
            if text is not None:
                print(f"palisade: {' '.join(text.split())}", file=sys.stderr, flush=True)
            await asyncio.sleep(NOTICE_S)

    showing = asyncio.ensure_future(show())
    try:
        yield
    finally:
        showing.cancel()


@dataclass(frozen=True, slots=True)
class CliSession:
    """How one command reaches the cluster and how it answers. `endpoints` are 'host:port' of streams."""

    endpoints: list[str]
    deadline_s: float
    as_json: bool
    shown: Credentials | None = None
    """Who asks."""

    def call(self, action: Callable[[Client], Coroutine[Any, Any, T]], *, notice: bool = True) -> T:
        """What `action` returns. Every error that is not a bug of ours ends the process with its exit code. `notice`:
        stderr shows what the command waits for."""

        async def run() -> T:
            from palisade.client import Client

            async with Client(self.endpoints, timeout_s=self.deadline_s, credentials=self.shown) as client:
                if not notice or self.as_json:
                    return await action(client)
                at = ", ".join(self.endpoints)
                async with waiting(lambda: client.trouble or f"no answer yet from the nodes at {at}"):
                    return await action(client)

        try:
            return asyncio.run(run())
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            self.leave_closed_pipe()
        except Exception as error:
            failure = failure_of(error, self.endpoints)
            if failure is None:
                raise
            self.fail(failure)

    def fail(self, failure: Failure) -> NoReturn:
        """Say it on stderr, as one line, and leave."""
        if self.as_json:
            body = {"code": failure.code, "message": failure.message, "retry": failure.retry}
            print(json.dumps({"error": body}), file=sys.stderr)
        else:
            print(f"palisade: {' '.join(failure.message.split())}", file=sys.stderr)
        sys.exit(failure.exit_code)

    def answer(self, shape: Any, text: str) -> None:
        """The result, for programs or for people."""
        if self.as_json:
            print_json(shape)
        else:
            print(text)

    @staticmethod
    def leave_closed_pipe() -> NoReturn:
        """The reader of our output has gone (`| head`): that is its right, and no error."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
