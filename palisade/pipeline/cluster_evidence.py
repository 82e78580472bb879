"""Reads the input of an audit from a running cluster: digests of members, states of segments, copies of roles."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from palisade.base.errors import PalisadeError
from palisade.catalog.activation import ActivationRecord, LocalSequence
from palisade.client.activation import epoch_of, read_roles
from palisade.client.client import Client
from palisade.journal.client import JournalClient
from palisade.pipeline.audit.cluster_findings import CopyRow, MemberDigest, SegmentRow, compared, segment_rows
from palisade.pipeline.cluster import client_of
from palisade.pipeline.options import ClusterAccess
from palisade.wire.segment_errors import BrokerNotSynced, NoSuchDataSource

ROUNDS = 10
"""Attempts to get the digests of all members at one revision."""
COPY_S = 3.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """`first`, `last`: the revisions of the change feed; `read_wall_ms`: before `last` was
    read. `roles`: each with its record."""

    first: int
    last: int
    read_wall_ms: int
    digests: tuple[MemberDigest, ...]
    segments: tuple[SegmentRow, ...]
    epoch: int
    roles: tuple[tuple[str, ActivationRecord | None], ...]
    copies: tuple[CopyRow, ...]


def gather(access: ClusterAccess, copies: Sequence[tuple[str, str]]) -> Evidence:
    """`copies`: (role, address). Raises the errors of the client. In a thread, because the caller may be in a running
    event loop, as in a notebook."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(_gather(access, copies))).result()


async def _gather(access: ClusterAccess, copies: Sequence[tuple[str, str]]) -> Evidence:
    async with client_of(access) as client:
        read_wall_ms = time.time_ns() // 1_000_000
        here = await client.scan_counts(b"palisade", b"palisade\0")
        minimal = int((await client.status())["minimal_revision"])
        epoch = await epoch_of(client)
        roles = tuple((view.role, view.record) for view in await read_roles(client))
        segments = await _segments(client)
        members = [(each["id"], each["addresses"].get("stream", "")) for each in await client.members()]
    digests = await _digests(access, members)
    rows = tuple(await asyncio.gather(*(_copy(role, address) for role, address in copies)))
    first = minimal + 1 if minimal > 1 else 1
    return Evidence(first, here.revision, read_wall_ms, digests, segments, epoch, roles, rows)


async def _segments(client: Client) -> tuple[SegmentRow, ...]:
    try:
        sources = (await client.segments_list())["data_sources"]
    except BrokerNotSynced:
        return ()
    found: list[SegmentRow] = []
    for source in sources:
        name = source if isinstance(source, str) else source["data_source"]
        try:
            found += segment_rows(await client.segments_list(name))
        except NoSuchDataSource:
            continue
    return tuple(found)


async def _digests(access: ClusterAccess, members: Sequence[tuple[str, str]]) -> tuple[MemberDigest, ...]:
    found: tuple[MemberDigest, ...] = ()
    for _ in range(ROUNDS):
        found = tuple(await asyncio.gather(*(_digest(access, *member) for member in members)))
        if compared(found) >= sum(not each.problem for each in found):
            break
    return found


async def _digest(access: ClusterAccess, member: str, address: str) -> MemberDigest:
    if not address:
        return MemberDigest(member, problem="it has no stream")
    try:
        async with client_of(access, [address]) as client:
            digest = await client.digest()
    except PalisadeError as error:
        return MemberDigest(member, problem=str(error))
    return MemberDigest(member, digest.revision, digest.chain, digest.buckets)


async def _copy(role: str, address: str) -> CopyRow:
    async with JournalClient(role, [address], timeout_s=COPY_S) as client:
        (found,) = await client.status()
    if "sequence" not in found:
        return CopyRow(role, address, problem=str(found.get("reason") or "no answer"))
    sequence, epoch = found["sequence"], found["epoch"]
    local = LocalSequence(sequence, epoch) if sequence else None
    return CopyRow(role, address, local, str(found["state"]).startswith("active"), bool(found["filling"]))
