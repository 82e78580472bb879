"""The configuration of one node: immutable, and checked on construction.

A wrong value is refused with the name of the option, the value and the remedy; no other part of the process has to
check it again. `node/config_sources.py` collects the values.

Listening beyond loopback without TLS is refused unless requested explicitly (N5): the network path could read
passwords, and every host that reaches the peer port could change everything. Beyond loopback the client ports require
authentication, unless it is switched off explicitly.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from palisade.base.address import Address, bracketed, is_loopback, is_wildcard
from palisade.base.errors import ConfigError
from palisade.base.identifier import check_id
from palisade.fencing.timing import FenceTiming as Fences
from palisade.fencing.timing import remainder_s
from palisade.topology.own_node import OwnNode
from palisade.topology.seed_sources import SeedSource

GIB = 1 << 30
RENEWAL_S_MIN = 0.05
"""Shortest time between two renewals of a lease: a node checks every 0.02 s what is due."""
AUTHORIZATION = ("auto", "on", "off")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
METRICS_TOKEN = re.compile(r"[!-~]{8,256}")


@dataclass(frozen=True, slots=True)
class InitialMember:
    """A founding member of the cluster. Written `id=host:peer` or `id=host:peer:http:stream`."""

    id: str
    peer: Address
    http: Address | None = None
    stream: Address | None = None

    def __str__(self) -> str:
        ports = [self.peer.port] + [other.port for other in (self.http, self.stream) if other is not None]
        return f"{self.id}={bracketed(self.peer.host)}:{':'.join(map(str, ports))}"

    def addresses(self) -> dict[str, str]:
        """Name -> 'host:port' of the addresses that are known."""
        known = {"peer": self.peer, "http": self.http, "stream": self.stream}
        return {name: str(address) for name, address in known.items() if address is not None}


@dataclass(frozen=True, slots=True)
class TimingConfig:
    """Times of the Raft group and of requests. The election timeout is drawn between its two bounds."""

    heartbeat_ms: int = 100
    election_min_ms: int = 1000
    election_max_ms: int = 1500
    request_deadline_s: float = 5.0

    def __post_init__(self) -> None:
        _between("heartbeat-ms", self.heartbeat_ms, 10, 10_000)
        _between("election-min-ms", self.election_min_ms, 50, 120_000)
        _between("request-deadline-s", self.request_deadline_s, 0.1, 600)
        if self.election_min_ms < 5 * self.heartbeat_ms:
            raise ConfigError(
                f"{self.election_min_ms} is less than 5 heartbeats of {self.heartbeat_ms} ms, so one "
                f"late message would depose a leader; give at least {5 * self.heartbeat_ms}",
                option="election-min-ms",
            )
        if self.election_max_ms < self.election_min_ms * 1.2:
            raise ConfigError(
                f"{self.election_max_ms} is too near to election-min-ms {self.election_min_ms}, so "
                f"candidates would collide; give at least {int(self.election_min_ms * 1.2)}",
                option="election-max-ms",
            )


@dataclass(frozen=True, slots=True)
class FenceTimes:
    """Times of the leases by which this node serves reads of its vault (`fencing.timing.FenceTiming`). `drift`: how
    much faster or slower than true time its clock may run, as a fraction.

    Nodes may have different times: a leader counts a lease with its holder's length, by its own drift and margin or the
    holder's, whichever ends later (`palisade/fencing/DESIGN.md`).
    """

    lease_s: float = 3.0
    renewals: int = 5
    drift: float = 0.01
    margin_s: float = 0.25

    def __post_init__(self) -> None:
        _between("fence-s", self.lease_s, 0.2, 3600)
        _between("fence-renewals", self.renewals, 2, 100)
        _between("fence-drift", self.drift, 0, 0.4)
        _between("fence-margin-s", self.margin_s, 0, 600)
        if self.lease_s / self.renewals < RENEWAL_S_MIN:
            raise ConfigError(
                f"{self.renewals} in {self.lease_s} s is more often than every {RENEWAL_S_MIN} s; give "
                f"at most {int(self.lease_s / RENEWAL_S_MIN)}, or a longer fence-s",
                option="fence-renewals",
            )
        least_s = remainder_s(self.lease_s, self.drift)
        if self.margin_s < least_s:
            raise ConfigError(
                f"{self.margin_s} is too short for a drift of {self.drift} and a lease of "
                f"{self.lease_s} s; give at least {math.ceil(least_s * 1e6) / 1e6:.6f}",
                option="fence-margin-s",
            )

    def timing(self) -> Fences:
        return Fences(self.lease_s, self.drift, self.margin_s, self.renewals)


@dataclass(frozen=True, slots=True)
class PeerConnections:
    """Connections between nodes. `strangers`: how many may be open on the peer port without a completed handshake."""

    handshake_timeout_s: float = 5.0
    idle_timeout_s: float = 5.0
    ping_s: float = 1.0
    redial_max_s: float = 2.0
    queue_bytes: int = 64 * 1024 * 1024
    strangers: int = 256

    def __post_init__(self) -> None:
        _between("peer-handshake-timeout-s", self.handshake_timeout_s, 0.1, 300)
        _between("peer-idle-timeout-s", self.idle_timeout_s, 0.2, 3600)
        _between("peer-ping-s", self.ping_s, 0.05, 600)
        _between("peer-redial-max-s", self.redial_max_s, 0.1, 300)
        _between("peer-queue-bytes", self.queue_bytes, 64 * 1024 * 1024, 16 * GIB)
        _between("peer-strangers", self.strangers, 8, 10_000)
        if self.idle_timeout_s < 2 * self.ping_s:
            raise ConfigError(
                f"{self.idle_timeout_s} is less than two pings of {self.ping_s} s, so one late "
                f"answer would break a connection; give at least {2 * self.ping_s}",
                option="peer-idle-timeout-s",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """How much history stays readable: the bound that is reached first compacts.

    Watermarks of archives hold back up to `hold_revisions` more. `log_entries` of the Raft log are kept for absent
    nodes; a node that was absent for longer gets a snapshot.
    """

    seconds: int = 3600
    revisions: int = 100_000
    hold_revisions: int = 1_000_000
    log_entries: int = 10_000

    def __post_init__(self) -> None:
        _between("retention-s", self.seconds, 1, 10 * 366 * 86_400)
        _between("retention-revisions", self.revisions, 1, 10**12)
        _between("retention-hold-revisions", self.hold_revisions, 0, 10**12)
        _between("log-retention-entries", self.log_entries, 1, 10**9)


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """M8, in bytes and operations."""

    key_bytes: int = 4 * 1024
    value_bytes: int = 1024 * 1024
    request_bytes: int = 2 * 1024 * 1024
    txn_operations: int = 1024
    quota_bytes: int = 8 * GIB

    def __post_init__(self) -> None:
        _between("limit-key-bytes", self.key_bytes, 1, 4 * 1024)
        _between("limit-value-bytes", self.value_bytes, 1, 64 * 1024 * 1024)
        _between("limit-request-bytes", self.request_bytes, 1024, 128 * 1024 * 1024)
        _between("limit-txn-operations", self.txn_operations, 1, 100_000)
        _between("quota-bytes", self.quota_bytes, 16 * 1024 * 1024, 1 << 44)
        if self.request_bytes < self.key_bytes + self.value_bytes:
            raise ConfigError(
                f"{self.request_bytes} is less than one key and one value "
                f"({self.key_bytes} + {self.value_bytes}), so that value could never be written; raise it",
                option="limit-request-bytes",
            )


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One process. It listens on http, peer, stream and swim; `advertise_host` is the host by which other nodes reach
    it.

    `follow`: no member of the Raft group; it does not listen on `peer` and `stream`.
    `standalone`: it listens on `http` only and contacts no node; options that name other nodes are ignored.
    `scenarios`: run scenarios on request over HTTP even if that listens beyond loopback.
    `segments`: store copies of the segments that are assigned to this node, fetched from other nodes or, if none
    has them, from `segments_origin` (None: the installed data set). A member's vault then applies every single
    revision.
    `segments_look_s`: interval between checks for segments past their TTL. `segments_trash_s`: how long those
    stay in the trash at least before they are deleted.
    `authorization` "auto": on if a client port listens beyond loopback. `root_password_file`: creates the user root in
    a cluster that has no users.
    `metrics_token`: with authorization, permits `GET /metrics` to a scraper, and nothing else.
    `otel_endpoint`: URL of the OpenTelemetry collector for traces of HTTP requests; None for no traces.
    `swim` None: the port of `peer`, by UDP. `seeds` empty: the SWIM addresses of the other founding members by that
    rule. `seeds_from`: sources of more seeds, read repeatedly.
    """

    id: str
    data_dir: Path
    cluster: str
    http: Address
    peer: Address
    stream: Address
    initial_cluster: tuple[InitialMember, ...] = ()
    join: Address | None = None
    swim: Address | None = None
    seeds: tuple[Address, ...] = ()
    seeds_from: tuple[SeedSource, ...] = ()
    join_token: str | None = field(default=None, repr=False)
    metrics_token: str | None = field(default=None, repr=False)
    otel_endpoint: str | None = None
    follow: bool = False
    standalone: bool = False
    scenarios: bool = False
    segments: bool = False
    segments_origin: Path | None = None
    segments_look_s: float = 10.0
    segments_trash_s: float = 600.0
    catch_up_difference: int = 100
    advertise_host: str | None = None
    insecure_listen: bool = False
    authorization: str = "auto"
    root_password_file: Path | None = None
    timing: TimingConfig = field(default_factory=TimingConfig)
    fencing: FenceTimes = field(default_factory=FenceTimes)
    peers: PeerConnections = field(default_factory=PeerConnections)
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    limits: StoreLimits = field(default_factory=StoreLimits)
    log_level: str = "info"
    log_format: str = "text"

    def __post_init__(self) -> None:
        check_id("id", self.id)
        check_id("cluster", self.cluster)
        self._check_listening()
        self._check_authorization()
        self._check_membership()
        if self.log_level not in LOG_LEVELS:
            raise ConfigError(f"{self.log_level!r} is not one of {', '.join(LOG_LEVELS)}", option="log-level")
        if self.log_format not in LOG_FORMATS:
            raise ConfigError(f"{self.log_format!r} is not one of {', '.join(LOG_FORMATS)}", option="log-format")

    def advertised(self) -> dict[str, str]:
        """Name -> 'host:port' under which other processes reach this node."""
        return {
            name: str(Address(self.advertise_host or address.host, address.port))
            for name, address in self.listening().items()
        }

    @property
    def authorizes(self) -> bool:
        """Whether the client ports authenticate and authorize their clients."""
        if self.authorization != "auto":
            return self.authorization == "on"
        clients = (self.http,) if self.follow or self.standalone else (self.http, self.stream)
        return not all(is_loopback(address.host) for address in clients)

    def swim_listening(self) -> Address:
        return self.swim or self.peer

    def swim_advertised(self) -> str:
        """'host:port' of this node's SWIM socket, as other nodes reach it."""
        address = self.swim_listening()
        return str(Address(self.advertise_host or address.host, address.port))

    def swim_seeds(self) -> tuple[str, ...]:
        """Nodes that may know the others, as far as the configuration names them."""
        founders = (member.peer for member in self.initial_cluster if member.id != self.id)
        return tuple(map(str, self.seeds or founders))

    def own_node(self) -> OwnNode:
        return OwnNode(
            id=self.id,
            cluster=self.cluster,
            addresses=self.advertised(),
            host_is_fixed=self.advertise_host is not None,
            swim_listening=self.swim_listening(),
            swim_address=self.swim_advertised(),
            seeds=self.swim_seeds(),
            seed_sources=self.seeds_from,
            join=self.join,
        )

    def listening(self) -> dict[str, Address]:
        """TCP ports by name."""
        if self.follow or self.standalone:
            return {"http": self.http}
        return {"http": self.http, "peer": self.peer, "stream": self.stream}

    def _check_listening(self) -> None:
        listening = self.listening()
        if len(set(listening.values())) < len(listening):
            raise ConfigError(
                f"http {self.http}, peer {self.peer}, stream {self.stream}: two of them are the same; "
                "give each its own port"
            )
        if self.join_token is not None and not 8 <= len(self.join_token.encode()) <= 256:
            raise ConfigError("must have 8 to 256 bytes; give a longer or shorter one", option="join-token")
        if self.metrics_token is not None and not METRICS_TOKEN.fullmatch(self.metrics_token):
            raise ConfigError("must have 8 to 256 visible ASCII characters", option="metrics-token")
        if self.otel_endpoint is not None and not self.otel_endpoint.startswith(("http://", "https://")):
            raise ConfigError(
                f"{self.otel_endpoint} is not a URL; give one such as http://host:4318", option="otel-endpoint"
            )
        swim = {} if self.standalone else {"swim": self.swim_listening()}
        for name, address in {**listening, **swim}.items():
            if not self.insecure_listen and not is_loopback(address.host):
                raise ConfigError(
                    f"{address} is reachable from other machines, and there is no TLS: every host on the path "
                    "may read and change everything. Listen on 127.0.0.1, or accept "
                    "this with --insecure-listen",
                    option=name,
                )
            if self.advertise_host is None and is_wildcard(address.host):
                raise ConfigError(
                    f"{address} is not reachable by other nodes; give --advertise-host with the name or "
                    "address of this machine",
                    option=name,
                )

    def _check_authorization(self) -> None:
        if self.authorization not in AUTHORIZATION:
            raise ConfigError(
                f"{self.authorization!r} is not one of {', '.join(AUTHORIZATION)}", option="authorization"
            )
        if self.authorizes and not self.join_token:
            default = " by default, beyond loopback" if self.authorization == "auto" else ""
            raise ConfigError(
                f"it is on{default}, but PALISADE_JOIN_TOKEN is not set: set the same token on all nodes, or set "
                "authorization to off (insecure: every client that reaches the node may read and "
                "change everything)",
                option="authorization",
            )
        if self.root_password_file is not None and not self.authorizes:
            raise ConfigError(
                f"{self.root_password_file} has no effect while authorization is off; give "
                "--authorization=on, or omit it",
                option="root-password-file",
            )

    def _check_membership(self) -> None:
        _between("catch-up-difference", self.catch_up_difference, 0, 10**12)
        _between("segments-look-s", self.segments_look_s, 0.1, 86_400)
        _between("segments-trash-s", self.segments_trash_s, 0, 10**9)
        if self.follow and self.initial_cluster:
            raise ConfigError(
                "a follower is no founding member; omit initial-cluster, and name nodes of the "
                "cluster with --seeds or --join",
                option="follow",
            )
        if self.follow and not (self.seeds or self.seeds_from or self.join or self.standalone):
            raise ConfigError("no node of the cluster is named; give --seeds, --seeds-from or --join", option="follow")
        if self.initial_cluster and self.join:
            raise ConfigError(
                f"{self.join} and initial-cluster exclude each other; give join to join a running cluster, "
                "initial-cluster to create a new one",
                option="join",
            )
        ids = [member.id for member in self.initial_cluster]
        if len(set(ids)) < len(ids):
            raise ConfigError(f"a member is named twice in {', '.join(ids)}; name each once", option="initial-cluster")
        if ids and self.id not in ids:
            raise ConfigError(
                f"{', '.join(ids)} does not name this node, {self.id!r}; add it, or correct --id",
                option="initial-cluster",
            )
        own = next((member for member in self.initial_cluster if member.id == self.id), None)
        if own is not None and own.peer.port != self.peer.port:
            raise ConfigError(
                f"initial-cluster gives {self.id} the peer port {own.peer.port}, but peer is {self.peer}; "
                "make them the same"
            )


def _between(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{value} is out of range; give a value from {low} to {high}", option=option)
