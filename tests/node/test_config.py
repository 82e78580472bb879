"""A configuration is checked on construction, and an error names the option, the value and the remedy (issue 2)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palisade.base.address import Address, AddressError
from palisade.base.errors import ConfigError
from palisade.fencing.timing import FenceTiming as Fences
from palisade.node.config import FenceTimes, InitialMember, NodeConfig, RetentionConfig, StoreLimits, TimingConfig
from palisade.node.config_sources import load_node_config
from palisade.node.host import transport_limits
from palisade.node.options import OPTIONS, GivenValue, read_bytes, with_origin
from palisade.raftgroup.peer_connection import TransportLimits

MINIMAL = {
    "id": "n1",
    "data-dir": "d",
    "cluster": "c",
    "http": "127.0.0.1:7401",
    "peer": "127.0.0.1:7501",
    "stream": "127.0.0.1:7601",
}


def load(file: Path | None = None, environ: dict[str, str] | None = None, **options: str) -> NodeConfig:
    typed = MINIMAL | {name.replace("_", "-"): text for name, text in options.items()}
    return load_node_config(typed, file, environ or {})


def test_defaults_are_those_of_the_design() -> None:
    config = load()
    assert config.timing == TimingConfig(
        heartbeat_ms=100, election_min_ms=1000, election_max_ms=1500, request_deadline_s=5
    )
    assert config.fencing == FenceTimes(lease_s=3, renewals=5, drift=0.01, margin_s=0.25)
    assert config.fencing.timing() == Fences()
    assert config.retention == RetentionConfig(seconds=3600, revisions=100_000, log_entries=10_000)
    assert config.limits == StoreLimits(4096, 1 << 20, 2 << 20, 1024, 8 << 30)
    assert config.http == Address("127.0.0.1", 7401)
    assert config.advertised() == {"http": "127.0.0.1:7401", "peer": "127.0.0.1:7501", "stream": "127.0.0.1:7601"}


def test_command_line_overrides_environment_overrides_file(tmp_path: Path) -> None:
    file = tmp_path / "palisade.toml"
    file.write_text('heartbeat-ms = 20\nretention_s = 60\nquota-bytes = "1GiB"\n')
    environ = {"PALISADE_HEARTBEAT_MS": "30", "PALISADE_RETENTION_S": "70"}
    config = load(file, environ, heartbeat_ms="40")
    assert (config.timing.heartbeat_ms, config.retention.seconds, config.limits.quota_bytes) == (40, 70, 1 << 30)


def test_times_of_fencing_are_options(tmp_path: Path) -> None:
    """design.md, "Revision-bound leases": "all configurable"."""
    file = tmp_path / "palisade.toml"
    file.write_text("fence-s = 1.5\nfence-drift = 0.02\n")
    timing = load(file, {"PALISADE_FENCE_RENEWALS": "6"}, fence_margin_s="0.5").fencing.timing()
    assert timing == Fences(fence_s=1.5, drift=0.02, margin_s=0.5, renewals_per_fence=6)
    assert timing.proceed_s() == pytest.approx(1.5 * 1.04 + 0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fence_s": "0"}, r"fence-s: 0.0 is out of range; give a value from 0.2 to 3600"),
        ({"fence_s": "nan"}, "fence-s: nan is out of range"),
        ({"fence_s": "soon"}, "fence-s: 'soon' is not a number"),
        ({"fence_renewals": "1"}, "fence-renewals: 1 is out of range"),
        ({"fence_s": "0.5", "fence_renewals": "20"}, "more often than every 0.05 s; give at most 10"),
        ({"fence_drift": "0.5"}, "fence-drift: 0.5 is out of range"),
        ({"fence_margin_s": "-1"}, "fence-margin-s: -1.0 is out of range"),
        ({"fence_margin_s": "0.0001"}, "fence-margin-s: 0.0001 is too short .* give at least 0.000607"),
    ],
)
def test_invalid_times_of_fencing_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(**options)


def test_environment_variables_that_are_no_options_are_ignored() -> None:
    assert load(environ={"PALISADE_ENDPOINTS": "127.0.0.1:1"}) == load()


def test_members_of_a_new_cluster_may_name_all_their_ports() -> None:
    config = load(initial_cluster="n1=127.0.0.1:7501:7401:7601, n2=[::1]:7502")
    assert config.initial_cluster == (
        InitialMember("n1", Address("127.0.0.1", 7501), Address("127.0.0.1", 7401), Address("127.0.0.1", 7601)),
        InitialMember("n2", Address("::1", 7502)),
    )
    assert config.initial_cluster[1].addresses() == {"peer": "[::1]:7502"}
    assert ",".join(map(str, config.initial_cluster)) == "n1=127.0.0.1:7501:7401:7601,n2=[::1]:7502"


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("heartbeat_ms", "fast", "heartbeat-ms: 'fast' is not a whole number"),
        ("heartbeat_ms", "0", "heartbeat-ms: 0 is out of range; give a value from 10"),
        ("heartbeat_ms", "900", "less than 5 heartbeats"),
        ("election_max_ms", "1000", "candidates would collide"),
        ("http", "127.0.0.1", "is not host:port"),
        ("http", "127.0.0.1:99999", "port 99999 is out of range"),
        ("http", "127.0.0.1:7501", "two of them are the same"),
        ("id", "a/b", "id: 'a/b' is not a name"),
        ("id", "../x", "is not a name"),
        ("peer_idle_timeout_s", "1.5", "less than two pings of 1.0 s"),
        ("peer_queue_bytes", "1MiB", "peer-queue-bytes: 1048576 is out of range"),
        ("quota_bytes", "8GB!", "is not a size"),
        ("quota_bytes", "1", "quota-bytes: 1 is out of range"),
        ("limit_request_bytes", "4096", "less than one key and one value"),
        ("log_level", "loud", "not one of debug, info, warning, error"),
        ("initial_cluster", "n1:7501", "which is not id=host:peer-port"),
        ("initial_cluster", "n1=127.0.0.1:7501,n1=127.0.0.1:7502", "named twice"),
        ("initial_cluster", "n2=127.0.0.1:7502", "does not name this node"),
        ("initial_cluster", "n1=127.0.0.1:7511", "the peer port 7511"),
        ("insecure_listen", "maybe", "neither true nor false"),
    ],
)
def test_bad_value_is_refused_with_its_name_and_the_remedy(option: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(**{option: value})
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fence-s = -1.0", "-1.0 is out of range; give a value from 0.2"),
        ("segments = 3", "'3' is neither true nor false"),
        ("authorization = 'on'", "it is on, but PALISADE_JOIN_TOKEN is not"),
    ],
)
def test_refused_value_of_a_file_names_the_file_after_its_option(tmp_path: Path, text: str, says: str) -> None:
    """Issue 16: only texts that cannot be parsed named their source, and in another form."""
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=rf"^{text.partition(' ')[0]} \(from {file}\): {re.escape(says)}"):
        load(file)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("PALISADE_OTEL_ENDPOINT", "foo", "otel-endpoint (from PALISADE_OTEL_ENDPOINT): foo is not a URL"),
        ("PALISADE_JOIN", "h:99999", "join (from PALISADE_JOIN): 'h:99999': port 99999 is out of range"),
    ],
)
def test_refused_value_of_a_variable_names_the_variable(variable: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{re.escape(says)}"):
        load(environ={variable: value})


def test_refused_value_of_a_default_is_named_as_such() -> None:
    """A missing join token: authorization was said to be on by default where it was set, and the reverse."""
    with pytest.raises(ConfigError, match=r"^authorization: it is on by default, beyond loopback, but PALISADE_JOIN"):
        load(http="192.0.2.1:7401", insecure_listen="true")


def test_error_of_a_value_has_the_name_of_its_option(tmp_path: Path) -> None:
    """The source of a value was found by the text of the error."""
    with pytest.raises(ConfigError) as refusal:
        load(environ={"PALISADE_PEER_IDLE_TIMEOUT_S": "1.5"})
    assert refusal.value.option == "peer-idle-timeout-s"
    assert str(refusal.value).startswith("peer-idle-timeout-s (from PALISADE_PEER_IDLE_TIMEOUT_S): 1.5 is less than")
    found = with_origin(ConfigError("id: is the first word"), {"id": GivenValue("n1", "PALISADE_ID")})
    assert (found.option, str(found)) == ("", "id: is the first word")


def test_file_that_is_not_text_is_refused_in_plain_words(tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not TOML: it is not UTF-8"):
        load(file)


@pytest.mark.parametrize("name", sorted(MINIMAL))
def test_required_option_must_be_given(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: not given; use --{name}, PALISADE_"):
        load_node_config({key: text for key, text in MINIMAL.items() if key != name}, None, {})


def test_join_and_initial_cluster_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        load(join="127.0.0.1:7402", initial_cluster="n1=127.0.0.1:7501")


@pytest.mark.parametrize("listening", ["192.0.2.7:7401", "0.0.0.0:7401", "[::]:7401", "example.org:7401"])
def test_listening_beyond_loopback_must_be_requested(listening: str) -> None:
    """N5: there is no TLS yet, and clients must authenticate, so this must not happen by accident."""
    with pytest.raises(ConfigError, match="--insecure-listen"):
        load(http=listening)
    with pytest.raises(ConfigError, match="set authorization to off"):
        load(http=listening, insecure_listen="true", advertise_host="192.0.2.7")
    config = load(http=listening, insecure_listen="true", advertise_host="192.0.2.7", join_token="a join token")
    assert config.advertised()["http"] == "192.0.2.7:7401"
    assert config.authorizes
    assert not load(http=listening, insecure_listen="true", advertise_host="192.0.2.7", authorization="off").authorizes


def test_authorization_is_off_on_loopback_by_default() -> None:
    assert not load().authorizes
    assert load(authorization="on", join_token="a join token").authorizes
    with pytest.raises(ConfigError, match="JOIN_TOKEN"):
        load(authorization="on")
    with pytest.raises(ConfigError, match="not one of auto, on, off"):
        load(authorization="perhaps")
    with pytest.raises(ConfigError, match="root-password-file"):
        load(root_password_file="x")


def test_wildcard_address_needs_an_advertised_host() -> None:
    with pytest.raises(ConfigError, match="--advertise-host"):
        load(http="0.0.0.0:7401", insecure_listen="true")


@pytest.mark.parametrize("listening", ["localhost:7401", "127.9.9.9:7401", "[::1]:7401"])
def test_loopback_addresses_are_recognized(listening: str) -> None:
    assert str(load(http=listening).http) == listening


def test_missing_or_invalid_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("heartbeat-ms 100")
    with pytest.raises(ConfigError, match="is not TOML"):
        load(bad)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hearbeat-ms = 100", "unknown option 'hearbeat-ms'; did you mean heartbeat-ms?"),
        ("colour = 1", "unknown option 'colour'; 'palisade node --help' lists the options"),
        ("heartbeat-ms = true", "is a boolean"),
        ("heartbeat-ms = [1]", "is a table or a list"),
        ("[timing]\nheartbeat-ms = 1", "unknown option 'timing'"),
    ],
)
def test_file_with_a_wrong_entry_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "palisade.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refusal:
        load(file)
    assert says in str(refusal.value)
    assert str(file) in str(refusal.value)


def test_options_of_peer_connections_reach_them() -> None:
    assert transport_limits(load()) == TransportLimits()
    given = {"handshake_timeout_s": "1", "idle_timeout_s": "9", "ping_s": "3", "redial_max_s": "0.1"}
    config = load(**{f"peer_{name}": text for name, text in given.items()}, peer_queue_bytes="1GiB", peer_strangers="9")
    limits = transport_limits(config)
    assert (limits.handshake_timeout_s, limits.idle_timeout_s, limits.ping_interval_s) == (1, 9, 3)
    assert (limits.redial_max_s, limits.queued_bytes_max, limits.strangers_max) == (0.1, 1 << 30, 9)


def test_sizes_may_have_units() -> None:
    assert [read_bytes(text) for text in ("17", "17 B", "2KiB", "3 MiB", "8GiB")] == [17, 17, 2048, 3 << 20, 8 << 30]


def test_every_option_has_its_variable_and_its_help() -> None:
    assert all(option.help.endswith(".") or option.name == "initial-cluster" for option in OPTIONS)
    assert len({option.variable for option in OPTIONS}) == len(OPTIONS)


@pytest.mark.parametrize("text", ["", ":1", "a b:1", "[::1:1", "h:1:2", "h:-1", "h:0", "h:٣"])
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError):
        Address.parse(text)
