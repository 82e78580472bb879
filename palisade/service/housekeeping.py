"""Commands that the leader proposes by itself: expiry of leases, compaction by retention, eviction of request results,
ticks of the replicated clock, and once per cluster its id.

The metadata store computes which commands are due (`MetaStore.due_commands`, pure). Proposing one twice is harmless, so
a change of leader in between is harmless, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets

from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import Command, FoundCluster
from palisade.metastore.state_machine import MetaStore
from palisade.raftgroup.errors import NodeFailed, RaftError
from palisade.raftgroup.ports import Clock
from palisade.service.ports import GroupFace

log = logging.getLogger(__name__)

LOOK_S = 0.1
FOLLOWS_S = 0.5
"""How often a follower looks for something to collect."""


async def do_leader_duties(group: GroupFace, store: MetaStore, clock: Clock) -> None:
    """Runs until cancelled. Raises NodeFailed when the node has stopped itself."""
    while True:
        if not (group.leads or store.collecting):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(group.until_leads(), FOLLOWS_S)
        await asyncio.sleep(LOOK_S)
        if store.collecting:
            store.collect()
        if not group.leads:
            continue
        for command in due(store, clock):
            try:
                await group.propose(encode_command(command))
            except NodeFailed:
                raise
            except RaftError as error:
                log.debug(
                    "proposal not committed, it will be repeated: command=%s error=%s", type(command).__name__, error
                )
                break


def due(store: MetaStore, clock: Clock) -> list[Command]:
    """If several leaders choose an id, only the first one counts, so concurrent proposals are harmless."""
    commands = store.due_commands(store.clock_ms(clock.now()))
    return commands if store.lineage.cluster_id else [FoundCluster(secrets.token_hex(8)), *commands]
