"""The options of a node as data: name, parser, help text. Pure.

The command line, the environment (PALISADE_HEARTBEAT_MS), and the configuration file (heartbeat-ms = 100) are all built
from this one table, so they cannot differ. `node_config` turns given values into a `NodeConfig`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from palisade.base.address import Address, AddressError, parse_port, split_host
from palisade.base.errors import ConfigError
from palisade.node.config import (
    AUTHORIZATION,
    LOG_FORMATS,
    LOG_LEVELS,
    FenceTimes,
    InitialMember,
    NodeConfig,
    PeerConnections,
    RetentionConfig,
    StoreLimits,
    TimingConfig,
)
from palisade.topology.seed_sources import SeedSource, seed_source_of

UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off"}


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A value and where it came from, such as '--http', 'PALISADE_HTTP' or 'http in palisade.toml'."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Option:
    """`read` parses the value of `field`; its ValueError describes what is wrong with the text."""

    name: str
    field: str
    read: Callable[[str], Any]
    help: str
    group: type | None = None
    flag: bool = False

    @property
    def default(self) -> Any:
        """The value if the option is not given; MISSING for a required option."""
        owner = self.group or NodeConfig
        return next(known.default for known in fields(owner) if known.name == self.field)

    @property
    def default_text(self) -> str:
        """The default in the form in which it is typed, empty if there is none."""
        return "" if self.default in (MISSING, None, False, ()) else str(self.default)

    @property
    def variable(self) -> str:
        return variable_of(self.name)


def variable_of(name: str) -> str:
    return "PALISADE_" + name.upper().replace("-", "_")


def read_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("is not a whole number") from None


def read_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("is not a number") from None


def read_bytes(text: str) -> int:
    """'8GiB', '512 MiB' or a plain number of bytes."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().upper()
    if unit == "B":
        unit = ""
    if not digits.isdigit() or unit not in UNITS:
        raise ValueError("is not a size; write a number of bytes, or a size such as 512MiB or 8GiB")
    return int(digits) * UNITS[unit]


def read_flag(text: str) -> bool:
    if text.lower() in TRUE | FALSE:
        return text.lower() in TRUE
    raise ValueError("is neither true nor false")


def read_level(text: str) -> str:
    return text.lower()


def read_members(text: str) -> tuple[InitialMember, ...]:
    """'n1=127.0.0.1:7501,n2=127.0.0.1:7502', each optionally with http and stream port: n1=host:peer:http:stream."""
    return tuple(_read_member(part.strip()) for part in text.split(",") if part.strip())


def read_addresses(text: str) -> tuple[Address, ...]:
    return tuple(Address.parse(part.strip()) for part in text.split(",") if part.strip())


def _read_member(text: str) -> InitialMember:
    name, equals, rest = text.partition("=")
    host, ports = split_host(rest)
    if not equals or not name or len(ports) not in (1, 3):
        raise ValueError(f"has {text!r}, which is not id=host:peer-port or id=host:peer-port:http-port:stream-port")
    addresses = [Address(host, parse_port(port)) for port in ports]
    return InitialMember(name, *addresses)


def read_seed_sources(text: str) -> tuple[SeedSource, ...]:
    return tuple(seed_source_of(part.strip()) for part in text.split(",") if part.strip())


OPTIONS = (
    Option("id", "id", str, "Name of this node, unique in the cluster."),
    Option("data-dir", "data_dir", Path, "Folder of this node's data; created if missing."),
    Option("cluster", "cluster", str, "Name of the cluster; nodes of another one are refused."),
    Option("http", "http", Address.parse, "Address to serve HTTP on, as host:port."),
    Option("peer", "peer", Address.parse, "Address to listen on for other nodes, as host:port."),
    Option("stream", "stream", Address.parse, "Address to serve the msgpack stream on, as host:port."),
    Option("initial-cluster", "initial_cluster", read_members, "Members of a new cluster: id=host:peer-port,..."),
    Option("join", "join", Address.parse, "HTTP address of a node of the running cluster to join."),
    Option(
        "swim",
        "swim",
        Address.parse,
        "UDP address of SWIM, which discovers nodes; default: that of --peer, else --http.",
    ),
    Option("seeds", "seeds", read_addresses, "SWIM addresses of nodes to contact first: host:port,..."),
    Option(
        "seeds-from",
        "seeds_from",
        read_seed_sources,
        "Sources of more seeds: dns:HOST:PORT, file:PATH, call:MODULE:FUNCTION,...",
    ),
    Option("join-token", "join_token", str, "Token to join; preferably set as PALISADE_JOIN_TOKEN."),
    Option(
        "metrics-token", "metrics_token", str, "Token for GET /metrics only; preferably set as PALISADE_METRICS_TOKEN."
    ),
    Option("otel-endpoint", "otel_endpoint", str, "Send traces of HTTP requests to this OTLP/HTTP endpoint (URL)."),
    Option("follow", "follow", read_flag, "Keep a vault without being a member of the Raft group.", flag=True),
    Option("standalone", "standalone", read_flag, "Contact no other node: serve the vault read-only.", flag=True),
    Option("scenarios", "scenarios", read_flag, "Run scenarios over HTTP also beyond loopback.", flag=True),
    Option("segments", "segments", read_flag, "Store copies of the segments assigned to this node.", flag=True),
    Option("segments-origin", "segments_origin", Path, "Folder of the demo data; default: the installed package."),
    Option("segments-look-s", "segments_look_s", read_float, "Time between checks for segments past their TTL."),
    Option("segments-trash-s", "segments_trash_s", read_float, "Time in the trash before a segment is deleted."),
    Option(
        "catch-up-difference", "catch_up_difference", read_int, "Largest LM - LV at which a node counts as caught up."
    ),
    Option("advertise-host", "advertise_host", str, "Host by which other machines reach this node."),
    Option("insecure-listen", "insecure_listen", read_flag, "Listen beyond loopback without TLS.", flag=True),
    Option("authorization", "authorization", read_level, f"Authenticate clients: {', '.join(AUTHORIZATION)}."),
    Option(
        "root-password-file",
        "root_password_file",
        Path,
        "File with the password of the user root. If there are no users, root is created.",
    ),
    Option("log-level", "log_level", read_level, f"One of {', '.join(LOG_LEVELS)}."),
    Option("log-format", "log_format", read_level, f"Format of log lines: {', '.join(LOG_FORMATS)}."),
    Option("heartbeat-ms", "heartbeat_ms", read_int, "Time between heartbeats of the leader.", TimingConfig),
    Option("election-min-ms", "election_min_ms", read_int, "Minimum election timeout.", TimingConfig),
    Option("election-max-ms", "election_max_ms", read_int, "Maximum election timeout.", TimingConfig),
    Option("request-deadline-s", "request_deadline_s", read_float, "Maximum time of a request.", TimingConfig),
    Option("fence-s", "lease_s", read_float, "Time of a lease for reads of the vault (T_fence).", FenceTimes),
    Option("fence-renewals", "renewals", read_int, "Renewals per lease time.", FenceTimes),
    Option("fence-drift", "drift", read_float, "Maximum drift of this machine's clock, as a fraction.", FenceTimes),
    Option("fence-margin-s", "margin_s", read_float, "Safety margin before a lease counts as expired.", FenceTimes),
    Option(
        "peer-handshake-timeout-s",
        "handshake_timeout_s",
        read_float,
        "Time for the handshake between nodes.",
        PeerConnections,
    ),
    Option(
        "peer-idle-timeout-s",
        "idle_timeout_s",
        read_float,
        "Time without received data after which a connection is closed.",
        PeerConnections,
    ),
    Option("peer-ping-s", "ping_s", read_float, "Time between pings of a connection between nodes.", PeerConnections),
    Option(
        "peer-redial-max-s",
        "redial_max_s",
        read_float,
        "Maximum time between two connection attempts.",
        PeerConnections,
    ),
    Option(
        "peer-queue-bytes",
        "queue_bytes",
        read_bytes,
        "Maximum bytes queued for one node before its connection is closed.",
        PeerConnections,
    ),
    Option(
        "peer-strangers",
        "strangers",
        read_int,
        "Maximum number of connections without a completed handshake.",
        PeerConnections,
    ),
    Option(
        "retention-s",
        "seconds",
        read_int,
        "Maximum age of readable history in seconds; --retention-revisions applies too.",
        RetentionConfig,
    ),
    Option(
        "retention-revisions",
        "revisions",
        read_int,
        "Maximum number of readable revisions; --retention-s applies too.",
        RetentionConfig,
    ),
    Option(
        "retention-hold-revisions",
        "hold_revisions",
        read_int,
        "Further revisions that stay readable for an archive (`palisade pipeline run history`).",
        RetentionConfig,
    ),
    Option(
        "log-retention-entries", "log_entries", read_int, "Entries of the log kept for absent nodes.", RetentionConfig
    ),
    Option("limit-key-bytes", "key_bytes", read_bytes, "Maximum size of a key.", StoreLimits),
    Option("limit-value-bytes", "value_bytes", read_bytes, "Maximum size of a value.", StoreLimits),
    Option("limit-request-bytes", "request_bytes", read_bytes, "Maximum size of a request.", StoreLimits),
    Option(
        "limit-txn-operations",
        "txn_operations",
        read_int,
        "Maximum number of operations in a transaction.",
        StoreLimits,
    ),
    Option("quota-bytes", "quota_bytes", read_bytes, "Size of the store at which writes are refused.", StoreLimits),
)
BY_NAME = {option.name: option for option in OPTIONS}
OLD_NAMES = {f"partitions{rest}": f"segments{rest}" for rest in ("", "-origin", "-look-s", "-trash-s")}
"""Of earlier versions, in the environment and the configuration file; accepted until version 0.3."""
GROUPS: dict[type, str] = {
    TimingConfig: "timing",
    FenceTimes: "fencing",
    PeerConnections: "peers",
    RetentionConfig: "retention",
    StoreLimits: "limits",
}


def node_config(given: Mapping[str, GivenValue]) -> NodeConfig:
    """The configuration with these values, and defaults for the others. Raises ConfigError.

    `given` maps names of options to values; a text is parsed by the option, another value is used as TOML gave it.
    """
    plain: dict[str, Any] = {}
    groups: dict[type, dict[str, Any]] = {group: {} for group in GROUPS}
    for name, one in given.items():
        option = BY_NAME.get(name)
        if option is None:
            near = difflib.get_close_matches(name, BY_NAME, 1, cutoff=0.7)
            remedy = f"did you mean {near[0]}?" if near else "'palisade node --help' lists the options"
            raise ConfigError(f"{one.origin}: unknown option {name!r}; {remedy}")
        target = groups[option.group] if option.group else plain
        target[option.field] = read_value(option, one)
    if (plain.get("follow") or plain.get("standalone")) and "http" in plain:
        plain.setdefault("peer", plain.get("swim", plain["http"]))
        plain.setdefault("stream", plain["http"])
    for option in OPTIONS:
        if option.group is None and option.default is MISSING and option.field not in plain:
            raise ConfigError(
                f"not given; use --{option.name}, {option.variable} or the --config file", option=option.name
            )
    try:
        return NodeConfig(**plain, **{GROUPS[group]: group(**values) for group, values in groups.items()})
    except ConfigError as error:
        raise with_origin(error, given) from None


def with_origin(error: ConfigError, given: Mapping[str, GivenValue]) -> ConfigError:
    """With the source of the value, unless that is the command line."""
    name = error.option
    return of_source(name, error.reason, given[name]) if name in given else error


def of_source(name: str, reason: str, given: GivenValue) -> ConfigError:
    return ConfigError(reason, option=name, origin="" if given.origin == f"--{name}" else given.origin)


def read_value(option: Option, given: GivenValue) -> Any:
    """The value of one option. Raises ConfigError that names the option and the source of the value."""
    text = str(given.value).strip()
    try:
        if isinstance(given.value, bool) and not option.flag:
            raise ValueError("is a boolean, which this option is not")
        if isinstance(given.value, list | dict):
            raise ValueError("is a table or a list; write it as one text or number")
        return option.read(text)
    except AddressError as error:
        reason = str(error) if repr(text) in str(error) else f"{text!r}: {error}"
        raise of_source(option.name, reason, given) from None
    except ValueError as error:
        raise of_source(option.name, f"{text!r} {error}", given) from None
