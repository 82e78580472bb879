"""Connects the segment component of a node to its vault, if the node is configured to store segments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from palisade.base.address import Address, is_wildcard
from palisade.node.authorization import proof_of
from palisade.node.host import Host, SegmentOrigin
from palisade.node.requirements import need_pyarrow
from palisade.recovery.lifecycle import Part
from palisade.recovery.vault_component import OnVault
from palisade.segments.announcement_client import AnnouncementClient
from palisade.segments.announcer import Announcer
from palisade.segments.broker import SegmentBroker
from palisade.segments.expiry import Expiry
from palisade.segments.fenced_rules import FencedRules
from palisade.segments.file_source import url_of
from palisade.segments.holder import SegmentHolder
from palisade.segments.leased_announcements import LeasedAnnouncements
from palisade.segments.local_segments import LocalSegments
from palisade.segments.peers import SegmentPeers
from palisade.segments.realtime import RealtimeIngester
from palisade.segments.realtime_handoff import RealtimeHandOff
from palisade.segments.realtime_held import HeldSegments
from palisade.segments.retention_worker import Pace, RetentionWorker
from palisade.segments.segment_store import SegmentStore
from palisade.segments.sources import Everywhere
from palisade.segments.verification import Verifier
from palisade.service.fenced_reads import FencedReads
from palisade.topology.known_nodes import http_of_others
from palisade.topology.swim.record import Record
from palisade.vault.vault import Vault


@dataclass(frozen=True, slots=True)
class Segments:
    """`local` empty: the node stores none, and no listener follows its vault for them."""

    local: LocalSegments = field(default_factory=LocalSegments)
    peers: SegmentPeers | None = None
    origin: SegmentOrigin | None = None

    async def close(self) -> None:
        if self.origin is not None:
            self.origin.close()
        if self.peers is not None:
            await self.peers.close()


def with_segments(
    machine: Host, records: Callable[[], Iterable[Record]], on_vault: OnVault
) -> tuple[OnVault, Segments]:
    """`records`: of the physical topology. Raises ConfigError if pyarrow is not installed."""
    config, clock = machine.config, machine.clock
    if not config.segments:
        return on_vault, Segments()
    need_pyarrow()
    peers, origin = machine.segment_peers(), machine.segment_origin()
    listeners = on_vault.components.listeners
    own_stream = [] if config.follow else [str(local_address_of(config.stream))]
    store = AnnouncementClient(
        lambda: own_stream or streams_in(records()), proof_of(config), follow_leader=config.follow
    )
    own = LeasedAnnouncements(config.id, store, now=clock.now)
    expiry = Expiry(lambda: (clock.wall_ns() / 1e9, clock.now()))
    holder = SegmentHolder(
        config.id,
        SegmentStore(machine.segment_disk(), Verifier(asyncio.to_thread)),
        Everywhere(lambda: http_of_others(records(), config.id), peers.peer, origin, machine.segment_file, url_of),
        listeners,
        own,
        expiry,
    )
    pace = Pace(config.segments_look_s, config.segments_trash_s)
    retention = RetentionWorker(holder, listeners, expiry, partial(FencedRules.over, now=clock.now), pace)
    held = HeldSegments(machine.realtime_folder(), clock.now)
    realtime = RealtimeIngester(holder, own, held, listeners, trouble=lambda: store.trouble)
    announcer = Announcer(holder, own, listeners, realtime.growing)
    found = (
        on_vault.with_part(Part("segments", holder), holder.on)
        .with_part(Part("retention", retention, ("segments",)), holder.on)
        .with_part(Part("realtime", realtime, ("segments",)), holder.on)
        .with_part(Part("announcer", announcer, ("segments", "realtime")), holder.on)
        .with_part(Part("hand-off", RealtimeHandOff(realtime, asyncio.to_thread), ("announcer",)), holder.on)
    )
    return found, Segments(LocalSegments(holder, realtime), peers, origin)


def local_address_of(address: Address) -> Address:
    """The address at which this machine reaches a server that listens on `address`."""
    if not is_wildcard(address.host):
        return address
    return Address("::1" if ":" in address.host else "127.0.0.1", address.port)


def streams_in(records: Iterable[Record]) -> list[str]:
    """The addresses of the live members."""
    return [address for record in records if record.is_live and (address := record.tag("stream"))]


def with_broker(
    on_vault: OnVault, vault: Callable[[], Vault], reads: Callable[[], FencedReads], now: Callable[[], float]
) -> tuple[OnVault, SegmentBroker]:
    """Every node has one. It needs no single revisions, so a member's vault still follows the flushes of its store."""
    broker = SegmentBroker(on_vault.components.listeners, vault, reads, now)
    return on_vault.with_part(Part("segments broker", broker)), broker
