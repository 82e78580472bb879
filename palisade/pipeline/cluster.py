"""Reads parts of a scan from the nodes: connections, pages, pins.

A page is requested while the previous one is decoded. The client moves to another node when one fails; a scan may
continue at any node, because each page is of the same revision and lineage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from palisade.base.input_file import ending_input
from palisade.base.long_keys import is_long
from palisade.base.network_reason import reason_of
from palisade.client.client import Client
from palisade.client.sync_client import SyncClient
from palisade.metastore.errors import Compacted, InvalidRequest
from palisade.metastore.lineage import Lineage
from palisade.pipeline.batch_run import run_steps
from palisade.pipeline.batch_steps import finish_overlapping
from palisade.pipeline.cuts import BatchOpen, cut_after, cut_before, require_cut
from palisade.pipeline.errors import BadOption, RevisionGone, VaultNotRead
from palisade.pipeline.local_vault import local_samples, open_local, vault_pages
from palisade.pipeline.offsets import Here
from palisade.pipeline.options import ClusterAccess, ReadOptions
from palisade.pipeline.partitions import ReadPart
from palisade.pipeline.read_columns import needs_values
from palisade.pipeline.vault_rows import VaultRows
from palisade.wire.auth_errors import PermissionDenied
from palisade.wire.batch_records import KeySpan
from palisade.wire.credentials import Credentials, Password, StoredToken
from palisade.wire.fencing_errors import ReadPending
from palisade.wire.scan_pages import ChangePosition

log = logging.getLogger(__name__)

RENEWALS = 3
"""A pin is renewed after this share of its time."""
PENDING_TRIES = 6
PIN_TRIES = 5
"""Attempts for a read whose revision is compacted before it is pinned."""
SOONER = "load the DataFrame again, or read it in fewer hours"
OPEN_BATCH_S = 0.2
"""Interval at which a reader checks whether an open batch is complete."""
CLUSTER_LINE = "cluster-id: "


@dataclass(frozen=True, slots=True)
class Pinned:
    """The revision of a read, and the pin that retains it and, for a history, `oldest` too."""

    name: str
    revision: int
    oldest: int
    lineage: Lineage


def connect(access: ClusterAccess, endpoints: tuple[str, ...] = ()) -> SyncClient:
    """A client that uses the given nodes, in their order, instead of the leader. Raises BadOption."""
    return SyncClient(list(endpoints or access.endpoints), **_options_of(access))


def client_of(access: ClusterAccess, endpoints: Sequence[str] = ()) -> Client:
    """As `connect`, for asyncio."""
    return Client(list(endpoints or access.endpoints), **_options_of(access))


def _options_of(access: ClusterAccess) -> dict[str, Any]:
    return {
        "timeout_s": access.timeout_s,
        "follow_leader": False,
        "credentials": credentials_of(access),
        "wait_for_nodes": False,
    }


def require_answer(access: ClusterAccess) -> None:
    """Raises BadOption, and the errors of the client if the cluster does not answer. The request is a digest:
    linearizable, and no permission is required."""
    with connect(access) as client:
        client.digest()


def credentials_of(access: ClusterAccess) -> Credentials | None:
    """Raises BadOption if a file cannot be read, or is empty."""
    if access.token_file:
        token, _, second = _text_in("tokenFile", access.token_file).partition("\n")
        return StoredToken(token.strip(), second.removeprefix(CLUSTER_LINE).strip(), access.token_file)
    if access.user:
        return Password(access.user, _text_in("passwordFile", access.password_file).strip())
    return None


def _text_in(option: str, path: str) -> str:
    try:
        text = ending_input(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"option {option}: cannot read {path}: {reason_of(error)}") from None
    if not text.strip():
        raise BadOption(f"option {option}: {path} is empty")
    return text


def current(client: SyncClient, options: ReadOptions) -> Here:
    """The newest revision whose strict changes are all released and that no batch splits, and the oldest retained one.

    An open batch, whose writer may have died, is completed first, if the user has the right to. Raises ReadPending
    after `PENDING_TRIES` requests.
    """
    here = _looked(client, options)
    if here.open_batch:
        with suppress(PermissionDenied):
            run_steps(client, finish_overlapping([KeySpan(options.key, options.range_end)]))
        here = _looked(client, options)
    return here


def _looked(client: SyncClient, options: ReadOptions) -> Here:
    """Repeats the read, so that a stream survives a release that a failing node delays for longer than a request."""
    for tries_left in reversed(range(PENDING_TRIES)):
        try:
            here = client.scan_counts(options.key, options.key + b"\0")
            break
        except ReadPending:
            if not tries_left:
                raise
    windows = tuple(client.scan_windows(options.key, options.range_end))
    whole = cut_before(here.revision, windows)
    oldest = int(client.status()["minimal_revision"])
    return Here(whole, oldest, here.lineage, windows, open_batch=whole < here.revision)


def newest(client: SyncClient, options: ReadOptions) -> Here:
    """`current`, with every change that was acknowledged before the call. Raises BatchOpen."""
    until = time.monotonic() + options.access.timeout_s
    while (here := current(client, options)).open_batch:
        if time.monotonic() > until:
            raise BatchOpen(
                f"a batch that was published at revision {here.revision} is not complete, and this user has no right "
                "to complete it: try again, or read the state before it with option revision"
            )
        time.sleep(OPEN_BATCH_S)
    return here


def fix(client: SyncClient, options: ReadOptions, name: str) -> Pinned:
    """Choose the revision of a read, and pin it. Raises RevisionGone (it was compacted), InsideBatch, BatchOpen.

    If the chosen revision is compacted before it is pinned, another one is chosen, up to `PIN_TRIES` times. A revision
    that the options name stays.
    """
    first = options.first if options.history else 0
    named = first or (options.revision and not options.history)
    with _explained("choose a newer revision"):
        for _ in range(0 if named else PIN_TRIES - 1):
            with suppress(Compacted):
                return _pinned(client, options, first, name)
        return _pinned(client, options, first, name)


def _pinned(client: SyncClient, options: ReadOptions, first: int, name: str) -> Pinned:
    """Raises Compacted, InsideBatch, BatchOpen."""
    fixed = options.revision and (first or not options.history)
    here = current(client, options) if fixed else newest(client, options)
    revision = options.revision or here.revision
    oldest = min(first or first_of(here), revision) if options.history else revision
    if options.revision:
        require_cut("toRevision" if options.history else "revision", revision, here.windows)
    if first:
        require_cut("fromRevision, less one", first - 1, here.windows)
    client.pin(options.key, options.range_end, name, oldest, options.pin_ms)
    if options.revision:
        client.scan_counts(options.key, options.key + b"\0", revision)
    return Pinned(name, revision, oldest, here.lineage)


def first_of(here: Here) -> int:
    """The oldest retained revision that is not within a batch."""
    return (cut_after(here.minimal_revision - 1, here.windows) or here.minimal_revision - 1) + 1


def count(client: SyncClient, options: ReadOptions, pinned: Pinned) -> tuple[int, list[bytes]]:
    """The number of keys of the state, and samples by which it can be divided. With a vault on this machine both are
    estimated from its keys, so that no node counts. Raises RevisionGone."""
    bounds = options.key, options.range_end
    local = local_samples(options.vaults, *bounds)
    with _explained("load the DataFrame again"):
        if local is None:
            counts = client.scan_counts(*bounds, pinned.revision)
            return counts.keys, counts.samples
        client.scan_counts(options.key, options.key + b"\0", pinned.revision)
    keys, samples = local
    return keys, [sample for sample in samples if not is_long(sample)]


class PinRenewal:
    """Renews the pin of a read while its tasks run. A pin at the end of its maximum life is not renewed; the read
    continues until the revision is compacted."""

    def __init__(self, client: SyncClient, options: ReadOptions, pinned: Pinned, clock: Callable[[], float]) -> None:
        self._client, self._options, self._pinned, self._clock = client, options, pinned, clock
        self._due = clock()

    def __call__(self) -> None:
        if self._clock() < self._due:
            return
        self._due = self._clock() + self._options.pin_ms / 1000 / RENEWALS
        options, pinned = self._options, self._pinned
        try:
            self._client.pin(options.key, options.range_end, pinned.name, pinned.oldest, options.pin_ms)
        except InvalidRequest:
            self._due = float("inf")


@contextmanager
def beside(function: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Calls a function in a thread. The next call waits for the previous one, and the end for the last one; both raise
    its error."""
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[None] | None = None

        def call() -> None:
            nonlocal waiting
            if waiting is not None:
                waiting.result()
            waiting = pool.submit(function)

        yield call
        if waiting is not None:
            waiting.result()


def pages(options: ReadOptions, pinned: Pinned, part: ReadPart) -> Iterator[bytes | VaultRows]:
    """The rows of a part, in order: slices of a vault of this machine if that is wanted and possible, else pages of
    the network.

    Raises RevisionGone, VaultNotRead, and the errors of the client if no node answers.
    """
    if not options.vaults or part.first:
        yield from network_pages(options, pinned, part)
        return
    at: bytes | None = part.key
    try:
        with (
            closing(open_local(options.vaults, part.last, options.access.timeout_s)) as reader,
            connect(options.access, part.endpoints) as client,
            _explained(SOONER),
            beside(PinRenewal(client, options, pinned, time.monotonic)) as renew,
        ):
            values = needs_values(options.columns)
            for rows, until in vault_pages(reader, client, part, pinned.lineage, renew, values=values):
                yield rows
                at = until
    except VaultNotRead as error:
        if options.vault_only or at is None:
            raise
        log.warning("reading over the network: key=%r reason=%s", at, error)
        yield from network_pages(options, pinned, replace(part, key=at))


def network_pages(options: ReadOptions, pinned: Pinned, part: ReadPart) -> Iterator[bytes]:
    """Raises RevisionGone, and the errors of the client if no node answers."""
    with connect(options.access, part.endpoints) as client, ThreadPoolExecutor(1) as ahead:
        renew = PinRenewal(client, options, pinned, time.monotonic)
        values = needs_values(options.columns)

        def page(at: bytes | ChangePosition) -> tuple[bytes, bytes | ChangePosition | None]:
            renew()
            if isinstance(at, ChangePosition):
                return client.scan_changes(part.key, part.range_end, at, part.last, pinned.lineage, values=values)
            return client.scan_rows(at, part.range_end, part.last, pinned.lineage, values=values)

        waiting = ahead.submit(page, ChangePosition(part.first) if part.first else part.key)
        while True:
            with _explained(SOONER):
                found, until = waiting.result()
            if until is not None:
                waiting = ahead.submit(page, until)
            yield found
            if until is None:
                return


@contextmanager
def _explained(remedy: str) -> Iterator[None]:
    """Adds the remedy to Compacted."""
    try:
        yield
    except Compacted as error:
        raise RevisionGone(
            f"{error}. A pin keeps a revision only for the cluster's longest life of a pin: {remedy}"
        ) from error
