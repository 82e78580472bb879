"""Runs a command against the cluster, and turns every outcome into an exit code and one clear line.

0 done, 1 refused (nothing was changed), 2 wrong usage, 3 unavailable (nothing was changed; try again), 4 outcome
unknown (it may have been executed).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from palisade.base.counted import counted
from palisade.base.network_reason import reason_of
from palisade.cli.output import discard_output, work_done
from palisade.cli.printing import print_csv, print_json, print_rows
from palisade.cli.waiting import progressing, progressing_in_thread, waiting
from palisade.wire.credentials import StoredToken

if TYPE_CHECKING:
    from palisade.cli.request_progress import RequestProgress
    from palisade.client import Client
    from palisade.vault.errors import VaultError
    from palisade.wire.credentials import Credentials
    from palisade.wire.segment_errors import SegmentError, SegmentsUnavailable

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
REFUSED, USAGE, UNAVAILABLE, UNKNOWN = 1, 2, 3, 4
INTERRUPTED = 130
AGAIN_S = 0.2
"""Pause before nodes that do not answer yet are asked again."""
UNSURE = "interrupted: the request may have been executed, or may still be executed"
SIGN_IN = "Give --user (with PALISADE_PASSWORD, or type it), or --token-file, which 'palisade login' writes"
CORRECT = "Correct --user (or PALISADE_USER), or the password"
UP_STARTS = ", 'palisade up' starts some; if they are starting, retry"
UP_RUNS = "; 'palisade up' runs in this folder, so its nodes are starting or have ended, as its output shows: retry"
REFUSED_CONNECTION = "connection refused"
LATE = "no answer in time"
SILENT = frozenset({LATE, REFUSED_CONNECTION})
"""Reasons of addresses at which no node runs, or a frozen one."""
_NOTHING_LISTENS = re.compile("connection refused|connections are refused")
_OF_FILES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
    | {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
)
NO_STREAM = "A node that is not a member has no stream: palisade status, topology and recovery ask it with --at"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed command. `code` is stable; `retry`: the same command may succeed later. `missing`: the segments that a
    query lacks, all of them. `keys_left`: the prefix of keys that the command could not delete, and why."""

    exit_code: int
    code: str
    message: str
    retry: bool
    missing: tuple[str, ...] = ()
    keys_left: Mapping[str, str] | None = None


def unauthenticated(reason: str) -> str:
    """The reason of a node, and what to give or to correct."""
    from palisade.wire.auth_errors import WRONG_PASSWORD

    return f"{reason}. {CORRECT if WRONG_PASSWORD in reason else SIGN_IN}"


def failure_of(
    error: BaseException, endpoints: Sequence[str], source: str = "", *, up_runs: bool = False
) -> Failure | None:
    """The failure for an error of the client; None if the error is a bug. `source`, `up_runs`: as of CliSession."""
    from palisade.catalog.errors import CatalogError
    from palisade.cli.cluster_check import OtherCluster
    from palisade.client.claims import NotAcquired
    from palisade.client.lease import LeaseLost
    from palisade.metastore.errors import MetastoreError
    from palisade.raftgroup.errors import NodeFailed, OutcomeUnknown, RaftError, Unavailable
    from palisade.vault.errors import VaultError
    from palisade.wire.auth_errors import AuthorizationError
    from palisade.wire.error_codes import NotInitialized, WrongPort, refusal_of
    from palisade.wire.fencing_errors import ReleaseError, ReleasePending
    from palisade.wire.segment_errors import SegmentError

    if isinstance(error, ReleaseError):
        done = isinstance(error, ReleasePending)
        return Failure(UNKNOWN if done else UNAVAILABLE, refusal_of(error).code, str(error), error.retry)
    if isinstance(error, OutcomeUnknown):
        return Failure(UNKNOWN, refusal_of(error).code, str(error), False)
    if isinstance(error, WrongPort):
        return Failure(REFUSED, error.code, f"{error}; correct {source or '--endpoints'}", False)
    if isinstance(error, Unavailable | NodeFailed):
        start = (UP_RUNS if up_runs else UP_STARTS) if _NOTHING_LISTENS.search(str(error)) else ""
        hint = "" if isinstance(error, NotInitialized) else f"; 'palisade status' shows which nodes answer{start}"
        text = f"{error}{hint}"
        return Failure(UNAVAILABLE, refusal_of(error).code, text, True)
    if isinstance(error, MetastoreError | CatalogError):
        return Failure(REFUSED, refusal_of(error).code, str(error), error.retry)
    if isinstance(error, SegmentError | VaultError):
        return failed_read(error)
    if isinstance(error, AuthorizationError):
        row = refusal_of(error)
        text = unauthenticated(str(error)) if row.status == 401 else str(error)
        return Failure(UNAVAILABLE if error.retry else REFUSED, row.code, text, error.retry)
    if isinstance(error, NotAcquired | LeaseLost):
        return Failure(REFUSED if error.retry else UNAVAILABLE, error.code, str(error), error.retry)
    if isinstance(error, RaftError):
        return Failure(REFUSED, refusal_of(error).code, str(error), False)
    if isinstance(error, OtherCluster):
        return Failure(REFUSED, error.code, str(error), False)
    if isinstance(error, OSError | TimeoutError):
        return of_a_file(error) or unreachable(endpoints, source, error, up_runs=up_runs)
    return None


def of_a_file(error: OSError) -> Failure | None:
    """None if the error comes from the network, not from the file system."""
    if not error.filename and error.errno not in _OF_FILES:
        return None
    name = f"{error.filename}: " if error.filename else ""
    return Failure(REFUSED, "file-error", f"{name}{reason_of(error)}; correct that, or give another file", False)


def failed_read(error: SegmentError | VaultError) -> Failure:
    from palisade.wire.segment_errors import SegmentsUnavailable

    if isinstance(error, SegmentsUnavailable):
        return no_server(error)
    return Failure(UNAVAILABLE if error.retry else REFUSED, error.code, str(error), error.retry)


def no_server(error: SegmentsUnavailable, why: str | None = None) -> Failure:
    """`why`: what is known of the segments and their nodes."""
    why = why or f"{counted(len(error.missing), 'segment')} without a server"
    text = (
        f"{why}. Start the stopped nodes that have copies of these segments; if no node has a copy, run "
        "'palisade segments assign'. If no node can fetch one either, as after a restore, copy the old files of the "
        "segments into the folder 'segments' of an assigned node and restart it, or exclude the segments: 'palisade "
        "segments set-replicas DATA_SOURCE 0 SEGMENT' or 'mark-unused'. 'palisade segments nodes' counts missing "
        "copies, with the reason, and expired ones; 'palisade segments realtime list' names the nodes of growing "
        "segments"
    )
    return Failure(UNAVAILABLE, error.code, text, True, error.missing)


def unreachable(
    endpoints: Sequence[str],
    source: str,
    error: BaseException | None = None,
    reasons: Mapping[str, str] = MappingProxyType({}),
    *,
    up_runs: bool = False,
) -> Failure:
    """No endpoint answers. `reasons`: why, by address. `up_runs`: as of CliSession."""
    from palisade.client.connection_failures import text_of

    reason = f": {reason_of(error)}" if error is not None else ""
    origin = f" ({source})" if source else ""
    text = f"no node answers at {text_of(reasons) or ', '.join(endpoints)}{origin}{reason}"
    remedy = "start one with 'palisade up' or, if one is starting, retry; or give --endpoints"
    late = [at for at, why in reasons.items() if why == LATE]
    if late:
        start = "start the others with 'palisade up', " if len(late) < len(reasons) else ""
        remedy = f"the node at {', '.join(late)} may be frozen or busy: retry, {start}or give other --endpoints"
    remedy = f"{text}{UP_RUNS if up_runs else f'; {remedy}'}. {NO_STREAM}"
    return Failure(UNAVAILABLE, "unreachable", remedy, True)


def no_answer(reasons: Mapping[str, str]) -> Failure | None:
    """The failure if a node has given a reason; else None. Such a node runs, so starting one is no remedy."""
    from palisade.client.connection_failures import text_of
    from palisade.wire.error_codes import NOT_INITIALIZED

    if SILENT.issuperset(reasons.values()):
        return None
    again = "" if NOT_INITIALIZED in reasons.values() else "; retry"
    return Failure(UNAVAILABLE, "unreachable", f"no node can answer: {text_of(reasons)}{again}", True)


def result_of(asking: Coroutine[Any, Any, T], loop_factory: LoopFactory | None = None) -> T:
    """As asyncio.run, which formats the result of its task twice, as a part of the text of its Ctrl-C handler, and
    discards the text. For 400,000 keys that takes two seconds; here the task has no result."""
    results = list[T]()

    async def keep() -> None:
        results.append(await asking)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(keep())
    return results[0]


def nothing_else() -> str | None:
    """For a command that waits for nothing but answers."""
    return None


@dataclass(frozen=True, slots=True)
class CliSession:
    """How one command reaches the cluster, and the format of its output.

    `endpoints`: 'host:port' of streams. `shown`: the credentials. `source`: where the endpoints come from.
    `no_answer_remedy`: what else helps if no node can execute the command. `up_runs`: the endpoints are those of a
    `palisade up` that runs, so nodes that do not listen may be starting. `executed`: for a failure, the part of the
    command that was executed."""

    endpoints: Sequence[str]
    deadline_s: float
    as_json: bool
    shown: Credentials | None = None
    source: str = ""
    as_csv: bool = False
    no_answer_remedy: str = ""
    up_runs: bool = False
    executed: Callable[[], str | None] = nothing_else

    def with_credentials(self, shown: Credentials | None) -> CliSession:
        return replace(self, shown=shown)

    def call(
        self,
        action: Callable[[Client], Coroutine[Any, Any, T]],
        *,
        notice: bool = True,
        waits_for_nodes: bool = False,
        why: Callable[[], str | None] = nothing_else,
        warns_of_writes: bool = True,
        loop_factory: LoopFactory | None = None,
    ) -> T:
        """The result of `action`. Every error except a bug ends the process with its exit code.

        `notice`: whether stderr shows what the command waits for; False if the action shows it itself, because it
        writes output meanwhile. `waits_for_nodes`: wait also while all addresses refuse connections. `why`: what the
        action waits for while it has a connection. `warns_of_writes`: whether stderr shows after Ctrl-C that a write
        may have been executed; False if the caller has a remark of its own. `loop_factory`: of an event loop other
        than asyncio's."""
        uncertain = False

        async def asked(client: Client) -> T:
            nonlocal uncertain
            try:
                return await action(client)
            except asyncio.CancelledError:
                uncertain = client.has_uncertain_write
                raise

        async def run() -> T:
            from palisade.client import Client

            unreached: dict[str, str] = {}
            began = asyncio.get_running_loop().time()
            async with self.notice_of_check(unreached):
                endpoints = await self.checked_endpoints(unreached)
            waited_s = asyncio.get_running_loop().time() - began if self.up_runs else 0.0
            timeout_s = max(self.deadline_s - waited_s, AGAIN_S)
            credentials, waits = self.shown, waits_for_nodes or self.up_runs
            client = Client(endpoints, timeout_s=timeout_s, credentials=credentials, wait_for_nodes=waits)
            client.add_unreached(unreached)
            async with client:
                if not notice:
                    return await asked(client)
                async with self.notice_of(client, why):
                    return await asked(client)

        with self.note_after_ctrl_c(lambda: UNSURE if uncertain and warns_of_writes else None):
            return self.run(run(), loop_factory)

    def notice(self, why: Callable[[], str | None]) -> contextlib.AbstractAsyncContextManager[Callable[[], None]]:
        """`waiting`; with --json only on a terminal, because elsewhere stderr is for one object."""
        return waiting(why, only_terminal=self.as_json)

    def shown_progress(self, progress: RequestProgress) -> contextlib.AbstractAsyncContextManager[None]:
        """`progressing`; with --json as in `notice`."""
        return progressing(progress.line, only_terminal=self.as_json)

    def shown_work(self, progress: RequestProgress) -> contextlib.AbstractContextManager[None]:
        """As `shown_progress`, for work without an event loop."""
        return progressing_in_thread(progress.line, only_terminal=self.as_json)

    def notice_of_check(
        self, unreached: Mapping[str, str]
    ) -> contextlib.AbstractAsyncContextManager[Callable[[], None]]:
        """A `notice` while the cluster of each address is checked."""
        return self.notice(lambda: f"no cluster ID yet from {', '.join(unreached)}" if unreached else None)

    @contextlib.asynccontextmanager
    async def notice_of(
        self, client: Client, why: Callable[[], str | None] = nothing_else
    ) -> AsyncIterator[Callable[[], None]]:
        """A `notice` with the reason of the client, else of `why`, else of the connected node."""
        from palisade.cli.node_waits import NodeWaits, followed

        waits = NodeWaits()
        async with followed(client, waits), self.notice(lambda: waits.reason(client, why())) as erase:
            yield erase

    def run(self, asking: Coroutine[Any, Any, T], loop_factory: LoopFactory | None = None) -> T:
        """The result of `asking`. Every error except a bug ends the process with its exit code."""
        try:
            found = result_of(asking, loop_factory)
            work_done()
            return found
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            self.leave_closed_pipe()
        except Exception as error:
            failure = failure_of(error, self.endpoints, self.source, up_runs=self.up_runs)
            if failure is None:
                raise
            self.fail(failure)

    async def checked_endpoints(self, unreached: dict[str, str] | None = None) -> list[str]:
        """The endpoints to which the credentials may be sent. If none answers while `palisade up` runs, they are asked
        again until the deadline. `unreached`: as of `check_streams`.

        Raises OtherCluster, OSError, NotInitialized."""
        if not isinstance(self.shown, StoredToken):
            return list(self.endpoints)
        from palisade.cli.cluster_check import ASK_S, check_streams

        loop = asyncio.get_running_loop()
        until = loop.time() + self.deadline_s
        while True:
            ask_s = min(ASK_S, until - loop.time())
            try:
                return list(await check_streams(self.endpoints, self.shown, ask_s, unreached))
            except OSError:
                if not self.up_runs or loop.time() + AGAIN_S >= until:
                    raise
            await asyncio.sleep(AGAIN_S)

    def fail(self, failure: Failure) -> NoReturn:
        """Prints the failure on stderr, as one line and the missing segments, or as one JSON object, and ends the
        process."""
        if failure.exit_code == UNAVAILABLE and self.no_answer_remedy:
            failure = replace(failure, message=f"{failure.message}. {self.no_answer_remedy}")
        if executed := self.executed():
            failure = replace(failure, message=f"{failure.message}; {executed}")
        if self.as_json:
            body: dict[str, Any] = {"code": failure.code, "message": failure.message, "retry": failure.retry}
            if failure.missing:
                body["missing"] = failure.missing
            if failure.keys_left is not None:
                body["keys_left"] = dict(failure.keys_left)
            print(json.dumps({"error": body}), file=sys.stderr)
        else:
            print(f"palisade: {' '.join(failure.message.split())}", *failure.missing, sep="\n", file=sys.stderr)
        sys.exit(failure.exit_code)

    def unreachable(self, reasons: Mapping[str, str] = MappingProxyType({})) -> NoReturn:
        """Fails because no node answers. `reasons`: why, by address."""
        self.fail(self.unanswered(reasons))

    def unanswered(self, reasons: Mapping[str, str] = MappingProxyType({})) -> Failure:
        """The failure of a command that no node answers. `reasons`: why, by address."""
        nothing = unreachable(self.endpoints, self.source, reasons=reasons, up_runs=self.up_runs)
        return no_answer(reasons) or nothing

    def answer(self, shape: Any, text: str) -> None:
        """Prints the result as JSON, as CSV of the fields that are single values, or as text."""
        work_done()
        if self.as_json:
            print_json(shape)
        elif self.as_csv:
            single = {name: value for name, value in shape.items() if not isinstance(value, dict | list)}
            print_csv(list(single), [list(single.values())])
        else:
            print(text)

    def answer_beside_data(self, shape: Any, text: str) -> None:
        """Prints the result on stderr, as JSON or as text, for a command that has written its data to stdout."""
        print(json.dumps(shape) if self.as_json else text, file=sys.stderr)

    def rows(
        self,
        shape: Any,
        header: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        wraps: Collection[str] = (),
        cut: str | None = None,
        omits: Collection[str] = (),
        none: str = "",
    ) -> None:
        """Prints a result of several rows. On a narrow terminal: the columns that wrap, the one whose text is cut, and
        those that are omitted. `none`: the note on a terminal, in place of the table, if there is no row."""
        work_done()
        empty = bool(none) and not rows
        if self.as_json:
            print_json(shape)
        elif self.as_csv:
            print_csv(header, rows)
        elif not (empty and sys.stdout.isatty() and sys.stderr.isatty()):
            print_rows(header, rows, wraps=wraps, cut=cut, omits=omits)
        if empty:
            self.note_on_terminal(none)

    def note(self, text: str) -> None:
        """Prints a remark on stderr; not with --json, where stderr is for one object."""
        if not self.as_json:
            print(f"palisade: {text}", file=sys.stderr)

    def note_on_terminal(self, text: str) -> None:
        """As `note`, only on a terminal: for a result that is not an error, such as an empty one."""
        if sys.stderr.isatty() and not self.as_csv:
            self.note(text)

    @contextlib.contextmanager
    def note_after_ctrl_c(self, text: Callable[[], str | None]) -> Iterator[None]:
        """Prints the remark, unless it is None, if Ctrl-C ends the body."""
        try:
            yield
        except SystemExit as ended:
            if ended.code == INTERRUPTED and (remark := text()):
                self.note(remark)
            raise

    @staticmethod
    def leave_closed_pipe() -> NoReturn:
        """Ends the process if the reader of the output has ended (`| head`); this is not an error."""
        discard_output()
        sys.exit(0)
