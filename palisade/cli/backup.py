"""palisade backup: the whole store at one revision into a file, from a running cluster; or check such a file."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palisade.base.counted import counted
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.base.network_reason import NO_ANSWER
from palisade.cli.credentials import shown
from palisade.cli.http_request import RequestRefused
from palisade.cli.options import FILE, client_options
from palisade.cli.progress_bar import byte_bar
from palisade.cli.session import (
    INTERRUPTED,
    REFUSED,
    REFUSED_CONNECTION,
    UNAVAILABLE,
    CliSession,
    Failure,
    no_answer,
)
from palisade.cli.waiting import nothing_shown, progressing, waiting
from palisade.wire.credentials import header_of

if TYPE_CHECKING:
    from palisade.metastore.backup import BackupEnd, BackupHeader
    from palisade.node.backup_file import BackupFile
    from palisade.wire.error_codes import WrongPort

STDOUT = "-"
ASK_PART = 0.25
"""The share of the deadline for finding the members. If no node answers within it, they are asked again."""
AGAIN_S = 0.2
WITH_AUTHORIZATION = (
    ". With authorization on, --serializable needs a majority as well, to verify the user; docs/operations.md "
    "describes a backup without one"
)


class BrokenOff(Exception):
    """This node did not send a complete backup; another node may. `begun`: it sent a part."""

    def __init__(self, text: str, *, begun: bool = False) -> None:
        super().__init__(text)
        self.begun = begun


class NoMembers(BrokenOff):
    """No node has named the members. `later`: one may, because not all addresses refuse connections."""

    def __init__(self, text: str, *, later: bool) -> None:
        super().__init__(text)
        self.later = later


@click.command()
@click.argument("file", type=FILE)
@click.option("--verify", is_flag=True, help="Verify an existing FILE; no node is contacted.")
@click.option(
    "--serializable",
    is_flag=True,
    help="Back up the state of one node, also without a majority. With authorization on, see docs/operations.md.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing FILE once the new one is complete.")
@client_options
def backup(session: CliSession, file: str, verify: bool, serializable: bool, overwrite: bool) -> None:
    """Back up the whole store into FILE (- for stdout).

    The backup contains the store at one revision, with its history. Writes continue meanwhile.

    FILE exists once it is complete, verified and on disk. `palisade restore` makes a cluster from it.
    """
    from palisade.metastore.store_errors import BackupInvalid
    from palisade.node.backup_file import BackupFile, BackupFileError, verify_file

    target: BackupFile | None = None
    try:
        if verify:
            with byte_bar("verifying", lines=not session.as_json) as show:
                header, end = verify_file(Path(file), show)
        else:
            target = None if file == STDOUT else BackupFile(Path(file), overwrite=overwrite)
            with session.note_after_ctrl_c(lambda: f"the backup was interrupted; {left(file, target)}"):
                header, end = session.run(take(session, target, serializable))
    except (BackupInvalid, BackupFileError) as error:
        session.fail(Failure(REFUSED, "bad-backup", str(error), False))
    except RequestRefused as error:
        session.fail(error.failure())
    except BrokenOff as error:
        session.fail(Failure(UNAVAILABLE, "unreachable", str(error), True))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        if target is not None:
            target.discard()
    report(session, file, header, end)


def report(session: CliSession, file: str, header: BackupHeader, end: BackupEnd) -> None:
    shape = {"file": file, **asdict(header), "size_bytes": end.size_bytes, "blake2b": end.digest.hex()}
    name = "stdout" if file == STDOUT else file
    text = (
        f"{name}: revision {header.revision} of {header.cluster} (generation {header.generation}), "
        f"{counted(header.keys, 'key')}, {end.size_bytes} bytes, complete and verified"
    )
    if file == STDOUT:
        session.answer_beside_data(shape, text)
    else:
        session.answer(shape, text)


async def take(session: CliSession, target: BackupFile | None, serializable: bool) -> tuple[BackupHeader, BackupEnd]:
    """From the first node that gives one. A node has to begin to send within the deadline, and may not be silent for
    longer than that later: then the next one has the deadline from there on. Raises BrokenOff, RequestRefused,
    BackupInvalid, BackupFileError."""
    state = BackupState()
    if session.as_json and not sys.stderr.isatty():
        return await from_one_of(session, target, serializable, state)
    if not sys.stderr.isatty():
        async with progressing(lambda: f"palisade: {state.line}"):
            return await from_one_of(session, target, serializable, state)
    async with waiting(lambda: None if state.received else state.waits_for) as erase:
        state.before_bar = erase
        return await from_one_of(session, target, serializable, state)


def left(file: str, target: BackupFile | None) -> str:
    """What an interrupted backup leaves."""
    if target is None:
        return "the output is incomplete"
    if target.finished:
        return f"{file} is complete and verified"
    return f"{file} was not {'changed' if Path(file).exists() else 'written'}"


@dataclass(slots=True)
class BackupState:
    """The command waits for the addresses that have not answered, then for the backup of `url`. `before_bar` erases
    this notice on a terminal."""

    silent: dict[str, str] = field(default_factory=dict)
    url: str = ""
    leaderless: bool = False
    received: int = 0
    before_bar: Callable[[], None] = nothing_shown

    @property
    def waits_for(self) -> str:
        return f"no backup yet from {self.url}" if self.url else f"no answer yet from {', '.join(self.silent)}"

    @property
    def line(self) -> str:
        if not self.received:
            return f"waiting: {self.waits_for}"
        return f"backup: {self.received:,} bytes from {self.url}"


async def from_one_of(
    session: CliSession, target: BackupFile | None, serializable: bool, state: BackupState
) -> tuple[BackupHeader, BackupEnd]:
    reasons, unasked, until = list[str](), list[str](), time.monotonic() + session.deadline_s
    try:
        urls = await urls_in_time(session, state, until)
    except NoMembers as error:
        hint = WITH_AUTHORIZATION if serializable and error.later and shown() is not None else ""
        raise BrokenOff(f"{error}{hint}") from None
    for url in urls:
        left_s = until - time.monotonic()
        if left_s <= 0:
            unasked.append(url)
            continue
        state.url, state.received = url, 0
        try:
            with byte_bar("backup", sized=False) as show:
                path = f"/v1/backup{'?serializable=true' if serializable else ''}"

                def count(done: int, show: Callable[[int, int | None], None] = show) -> None:
                    if not state.received:
                        state.before_bar()
                    state.received = done
                    show(done, None)

                found = await download(url + path, target, count, begin_s=left_s, silent_s=session.deadline_s)
            if target is None:
                return found
            with byte_bar("verifying", lines=not session.as_json) as show:
                return target.finish(until_cancelled(show))
        except BrokenOff as error:
            reasons.append(f"{url}: {error}")
            if error.begun and target is None:
                break
            if error.begun:
                until = time.monotonic() + session.deadline_s
    reasons += unanswered_clauses(unasked, state.silent, session.deadline_s)
    text = "; ".join(reasons) or f"no node answers at {', '.join(session.endpoints)}"
    if state.leaderless and not serializable:
        text += ". None of the nodes that answer knows a leader, without which a backup may be outdated: retry when "
        text += "there is one, or accept that with --serializable"
    raise BrokenOff(f"{text}. Nothing was written; 'palisade status' shows which nodes answer")


def until_cancelled(show: Callable[[int, int | None], None]) -> Callable[[int, int | None], None]:
    """`show` for work that does not await: raises CancelledError after Ctrl-C, which otherwise takes effect at its
    end."""
    task = asyncio.current_task()

    def shown(done: int, total: int | None) -> None:
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        show(done, total)

    return shown


def unanswered_clauses(unasked: Sequence[str], silent: Collection[str], deadline_s: float) -> list[str]:
    """Parts of the error: nodes not asked within the deadline, and addresses that did not answer the first request."""
    found = [f"not asked before the deadline of {deadline_s:g} s: {', '.join(unasked)}"] if unasked else []
    return [*found, f"no answer from {', '.join(silent)}"] if silent else found


async def urls_in_time(session: CliSession, state: BackupState, until: float) -> list[str]:
    """`urls_of`, repeated until the deadline while a node may answer later: without a majority it cannot verify a
    user."""
    timeout_s = ASK_PART * session.deadline_s
    while True:
        try:
            return await urls_of(session, state, timeout_s)
        except NoMembers as error:
            timeout_s = until - time.monotonic() - AGAIN_S
            if not error.later or timeout_s < AGAIN_S:
                raise
        await asyncio.sleep(AGAIN_S)


async def urls_of(session: CliSession, state: BackupState, timeout_s: float) -> list[str]:
    """The HTTP addresses of the nodes; the leader comes last, because it has the most load. Sets in `state` the
    addresses that have not answered, and whether none of the others knows a leader.

    Raises NoMembers, AuthorizationError, OtherCluster, WrongPort, OSError."""
    from palisade.cli.status import ask
    from palisade.wire.error_codes import NOT_INITIALIZED

    silent = state.silent
    wrong: list[WrongPort] = []
    reasons: dict[str, str] = {}
    endpoints = await session.checked_endpoints(silent)
    reasons.update(silent)
    silent.update(dict.fromkeys(session.endpoints, NO_ANSWER))

    async def answer_of(address: str) -> Mapping[str, Any] | None:
        answer = await ask(address, timeout_s, wrong, reasons)
        if answer is not None:
            silent.pop(address, None)
        return answer

    found = await asyncio.gather(*map(answer_of, endpoints))
    answers = [each for each in found if each is not None]
    if wrong and not answers:
        raise wrong[0]
    if not answers:
        failure = session.unanswered(reasons)
        starting = session.up_runs and no_answer(reasons) is None
        later = starting or not {REFUSED_CONNECTION, NOT_INITIALIZED}.issuperset(reasons.values())
        raise NoMembers(f"{failure.message}. Nothing was written", later=later)
    state.leaderless = not any(answer["leader"] for answer in answers)
    members = {member["id"]: member for answer in answers for member in answer["members"]}
    up = {answer["member"] for answer in answers}
    order = sorted(members.values(), key=lambda each: (each["id"] not in up, each["leader"], each["id"]))
    return [f"http://{each['addresses']['http']}" for each in order if "http" in each["addresses"]]


async def download(
    url: str,
    target: BackupFile | None,
    show: Callable[[int], None],
    *,
    begin_s: float,
    silent_s: float,
) -> tuple[BackupHeader, BackupEnd]:
    """Writes the backup of one node; every byte is verified first. `show` gets the number of bytes; the size in the
    header is that of the pages of the store, which is larger. `begin_s`: time limit for the first byte.

    Raises BrokenOff, RequestRefused."""
    from palisade.metastore.backup import BackupCheck
    from palisade.metastore.store_errors import BackupInvalid

    check, done = BackupCheck("the backup"), 0
    if target is not None:
        target.begin()
    at, _, path = url.removeprefix("http://").partition("/")
    requests = HttpRequests(header_of(shown()), timeout_s=None, connect_s=begin_s, silent_s=silent_s)
    try:
        async with asyncio.timeout(begin_s) as beginning, requests, requests.open(at, f"/{path}") as response:
            if response.status != 200:
                raise await refusal_in(response)
            async for data in response.content.iter_any():
                beginning.reschedule(None)
                check.feed(data)
                write(target, data)
                done += len(data)
                show(done)
        return check.finish()
    except TimeoutError:
        raise BrokenOff(f"no backup began within {begin_s:.1f} s") from None
    except NoAnswer as error:
        raise BrokenOff(f"it broke off after {done} bytes ({error.reason})", begun=done > 0) from None
    except BackupInvalid as error:
        raise BrokenOff(f"it broke off after {done} bytes: {error}", begun=done > 0) from None


def write(target: BackupFile | None, data: bytes) -> None:
    if target is not None:
        target.write(data)
        return
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def refusal_in(response: Any) -> BrokenOff | RequestRefused:
    """The error to raise: RequestRefused if the other nodes would refuse this client too, else BrokenOff."""
    try:
        problem = await response.json(content_type=None)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        return BrokenOff(f"HTTP {response.status}")
    if response.status in (401, 403) and not problem.get("retry"):
        return RequestRefused({"status": response.status, **problem})
    return BrokenOff(str(problem.get("detail", problem)))
