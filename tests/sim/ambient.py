"""Inputs of production code that are not handed in: random names, wall time for labels.

During a run they come from the seed. No decision depends on them: inputs of decisions have ports. The same for polling
intervals: nothing is due by them, so a run with fewer polls is as good, and several times as fast. One seed in
seventeen keeps the intervals of production, so that those are tested in all scenarios.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from random import Random
from typing import Any

from aiohttp import web_app

from palisade.api.stream import server
from palisade.base.metrics import Metrics
from palisade.catalog import parquet_rows, publication
from palisade.catalog.rows_digest import ColumnType
from palisade.client import session, sweeper
from palisade.metastore import snapshot
from palisade.node import segments_wiring
from palisade.node.fencing import fencing_component as part
from palisade.node.fencing import holder_registry as registry
from palisade.node.fencing import leader_connection as link
from palisade.node.fencing import lease_endpoint, lease_server
from palisade.raftgroup import group, replication
from palisade.raftgroup import read_barrier as barrier
from palisade.recovery import flush_follower as beside
from palisade.recovery import vault_component as vault_keeper
from palisade.recovery.cost_estimate import Rates
from palisade.recovery.recovery import Settings
from palisade.segments import coordinator, fenced_rules, holder, realtime_handoff, retention
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.service import housekeeping as leader_duties
from palisade.service import pending_write
from palisade.service import procedure_runner as runner
from palisade.topology import address_announcement as moving
from palisade.topology import join_token as token
from palisade.topology import registrar
from palisade.vault import read_policies as policies
from palisade.vault.reader import VaultReader
from palisade.vault.vault import Vault
from tests.support.raft_network import SMALL_PEER_BYTES_MAX
from tests.support.simulation import WALL_MS

WALL_S = WALL_MS // 1000
PRODUCTION_PACES_EVERY = 17
SMALL_PIECES_EVERY = 3
"""Snapshots of many pieces, so that faults occur between two of them."""
STAGED_EVERY = 2
"""Publications of segments in several transactions."""
ANNOUNCED_S = 3.0
"""The lease of a data node's announcements: some faults outlive it."""
DEAR_REPLAYS_EVERY = 4
DEAR_REPLAYS = Rates(replay_s=0.05)
"""So that a snapshot is the cheaper case for a node that has missed few revisions, as it is for many."""
SMALL_STAGES: tuple[tuple[Any, str, int], ...] = (
    (lease_server, "STAGE_BYTES_MAX", 1000),
    (lease_endpoint, "UNSENT_BYTES_MAX", 2000),
)
"""So that a holder that does not read is disconnected within some seconds."""
SMALL_APPENDS: tuple[tuple[Any, str, int], ...] = (
    (replication, "WINDOW_BYTES", SMALL_PEER_BYTES_MAX // 4),
    (replication, "APPEND_BYTES_MAX", SMALL_PEER_BYTES_MAX // 16),
)
"""In the proportion of production, so that the bytes in flight to a member that reads are never too many."""
PACES: tuple[tuple[Any, str, float], ...] = (
    (part, "TICK_S", 0.1),
    (link, "TICK_S", 0.1),
    (link, "RETRY_S", 0.15),
    (barrier, "_RETRY_S", 0.2),
    (part, "LOOK_S", 0.4),
    (registry, "LOOK_S", 0.4),
    (pending_write, "SWEEP_S", 0.2),
    (beside, "LOOK_S", 0.4),
    (leader_duties, "LOOK_S", 0.5),
    (server, "LEADER_POLL_S", 0.5),
    (runner, "LOOK_S", 0.4),
    (coordinator, "LOOK_S", 0.4),
    (session, "SWEEP_S", 0.4),
    (sweeper, "SWEEP_S", 0.4),
    (sweeper, "CALM_SWEEP_S", 0.4),
    (session, "CALM_LOOK_S", 0.02),
    (group, "_TICK_S", 0.15),
    (group, "_HOUSEKEEPING_S", 0.5),
    (moving, "RETRY_S", 2.0),
    (registrar, "LOOK_S", 0.5),
    (policies, "PAUSE_S_FIRST", 0.005),
    (policies, "PAUSE_S_MAX", 0.02),
)


@contextlib.contextmanager
def ambient(
    seed: int,
    now: Callable[[], float],
    wall: Callable[[], float] = lambda: 0.0,
    *,
    small_windows: bool = False,
    small_queues: bool = False,
) -> Iterator[None]:
    """`now`: the simulated time in seconds. `wall`: the wall clock's offset of the process that has its turn.
    `small_windows`: of streams. `small_queues`: between members."""
    _use_parquet()
    chance = Random(f"ambient {seed}")
    places: list[tuple[Any, str, Any]] = [
        (secrets, "token_hex", lambda count=16: chance.randbytes(count).hex()),
        (secrets, "token_bytes", lambda count=16: chance.randbytes(count)),
        (os, "urandom", chance.randbytes),
        (random, "_urandom", chance.randbytes),
        (random, "random", chance.random),
        (time, "time_ns", lambda: int((WALL_S + now() + wall()) * 1e9)),
        (time, "time", lambda: WALL_S + now() + wall()),
        (Metrics, "now", staticmethod(now)),
        (asyncio, "to_thread", _at_once),
        (hashlib, "scrypt", _stretched),
        (token, "scrypt", _stretched),
        (segments_wiring, "LeasedAnnouncements", partial(LeasedAnnouncements, ttl_s=ANNOUNCED_S)),
        (realtime_handoff, "FORGET_S", 5 * ANNOUNCED_S),
        (holder, "RETRY_MAX_S", 4.0),
        (retention, "SETTLE_S", 1.0),
        (fenced_rules, "VaultReader", _ReaderOfAThread),
    ]
    if seed % DEAR_REPLAYS_EVERY == 0:
        places.append((vault_keeper, "Settings", partial(Settings, rates=DEAR_REPLAYS)))
    if small_windows:
        places += SMALL_STAGES
    if small_queues:
        places += SMALL_APPENDS
    if seed % SMALL_PIECES_EVERY == 0:
        places.append((snapshot, "PIECE_BYTES", 1000))
    if seed % STAGED_EVERY == 0:
        places.append((publication, "OPERATIONS_MAX", 2))
    if seed % PRODUCTION_PACES_EVERY:
        places += PACES
    kept = [(owner, name, vars(owner)[name]) for owner, name, _ in places]
    disabled = logging.root.manager.disable
    for owner, name, value in places:
        setattr(owner, name, value)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)
        for owner, name, value in kept:
            setattr(owner, name, value)
        web_app._cached_build_middleware.cache_clear()  # it would keep the HTTP servers of each run, and so its world


@cache
def _use_parquet() -> None:
    """The first use imports modules that draw random numbers: before a run, so that it is like any other."""
    parquet_rows.inspect_segment(parquet_rows.parquet_of(parquet_rows.table_of([("id", ColumnType.INT)], [[1]])))


async def _at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    """Replaces a thread; a simulated process has none."""
    return work(*arguments)


class _ReaderOfAThread(VaultReader):
    """It reads rules directly before a removal. A thread may wait for a release there, which the event loop cannot."""

    @classmethod
    def over(cls, vault: Vault, **given: Any) -> VaultReader:  # type: ignore[override]
        return VaultReader.over(vault, sleep=_refused, **given)


def _refused(_s: float) -> None:
    raise retention.RulesUnknown("the read would wait")


def _stretched(secret: bytes, *, salt: bytes, dklen: int, **_: Any) -> bytes:
    """For passwords and tokens. Hashing them is slow on purpose, and took a tenth of a run."""
    return hashlib.blake2b(secret, salt=salt[: hashlib.blake2b.SALT_SIZE], digest_size=dklen).digest()
