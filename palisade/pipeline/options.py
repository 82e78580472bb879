"""The options of `format("palisade")`, parsed. Pure.

Credentials are never an option: Spark shows options in its user interface and logs them. `tokenFile` and
`passwordFile` name files that each worker reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from palisade.catalog.errors import BadField
from palisade.catalog.segment import moment_ms
from palisade.client.endpoints import read_endpoints
from palisade.client.operations import interval
from palisade.pipeline.errors import BadOption
from palisade.pipeline.offsets import Since
from palisade.pipeline.option_names import NO_TABLE, NamedOptions, OptionUse
from palisade.pipeline.segment_interval import interval_of

STAGE_MS, STAGE_MS_MIN = 600_000, 1_000
STREAM = "startingRevision"
"""The option that every streaming read has, and no other read."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Addresses and credentials with which a worker connects to the cluster."""

    endpoints: tuple[str, ...]
    token_file: str
    user: str
    password_file: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """`schema`: of JSON values; empty for others."""

    key_type: str
    value_type: str
    schema: str
    failfast: bool


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`key`, `range_end`: as in `wire.scan_pages`. `revision` 0: the newest at load. `first` 0: the oldest retained.
    `columns`: those to read; all if it is empty. `snapshots`: as in `StreamOptions`."""

    access: ClusterAccess
    key: bytes
    range_end: bytes
    revision: int
    history: bool
    first: int
    format: ValueFormat
    partitions: int
    partition_rows: int
    pin_ms: int
    vaults: tuple[str, ...]
    vault_only: bool
    columns: tuple[str, ...]
    snapshots: bool


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Of a read of keys. Raises BadOption, also for options of writes and of other reads."""
    known = NamedOptions(options)
    history = known.choice("history", "false", ("true", "false")) == "true"
    revision = known.number("revision", 0)
    if history and "revision" in known:
        raise BadOption("option revision is for states: give fromRevision and toRevision with history")
    if not history and ("fromRevision" in known or "toRevision" in known):
        raise BadOption("options fromRevision and toRevision are for changes: add option history=true")
    first, last = known.number("fromRevision", 0), known.number("toRevision", 0)
    if 0 < last < first:
        raise BadOption(f"fromRevision={first} is after toRevision={last}")
    known.require(_use_of_read(options))
    return ReadOptions(
        access_of(options),
        *_key_range(known),
        last if history else revision,
        history,
        first,
        value_format(options),
        known.number("numPartitions", 0, most=100_000),
        known.number("partitionRows", 100_000, least=1),
        known.number("pinMs", 600_000, least=1_000),
        *_vaults(known),
        _columns(known),
        _snapshots(known),
    )


def _use_of_read(options: Mapping[str, str]) -> OptionUse:
    """Of a read of keys. Raises BadOption."""
    known = NamedOptions(options)
    if STREAM in known:
        return OptionUse.STREAM
    return OptionUse.HISTORY if known.choice("history", "false", ("true", "false")) == "true" else OptionUse.STATE


def _vaults(known: NamedOptions) -> tuple[tuple[str, ...], bool]:
    folders = tuple(folder.strip() for folder in known.text("vaults").split(",") if folder.strip())
    only = known.choice("vaultOnly", "false", ("true", "false")) == "true"
    if only and not folders:
        raise BadOption("option vaultOnly needs option vaults")
    return folders, only


def access_of(options: Mapping[str, str]) -> ClusterAccess:
    """Raises BadOption, also for unknown options and for credentials among the options."""
    known = NamedOptions(options)
    if not known.text("endpoints"):
        hint = "" if options else f". {NO_TABLE}"
        raise BadOption(f"option endpoints is missing: give host:port of the stream of one or more nodes{hint}")
    try:
        endpoints = tuple(read_endpoints(known.text("endpoints")))
    except ValueError as error:
        raise BadOption(f"option endpoints: {error}") from None
    token_file, user, password_file = (known.text(name) for name in ("tokenFile", "user", "passwordFile"))
    if bool(user) != bool(password_file) or (token_file and user):
        raise BadOption("give tokenFile, or user and passwordFile")
    return ClusterAccess(
        endpoints, token_file, user, password_file, known.number("timeoutMs", 30_000, least=100) / 1000
    )


def value_format(options: Mapping[str, str]) -> ValueFormat:
    """Raises BadOption."""
    known = NamedOptions(options)
    schema = known.text("valueSchema")
    value_type = known.choice("valueType", "json" if schema else "binary", ("binary", "string", "json"))
    if (value_type == "json") != bool(schema):
        raise BadOption("give valueSchema for valueType=json, and only then")
    key_type = known.choice("keyType", "string", ("string", "binary"))
    return ValueFormat(
        key_type, value_type, schema, known.choice("mode", "permissive", ("permissive", "failfast")) == "failfast"
    )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """`start`: "earliest", "latest", a revision (the first that is read), or a time. `rows_max`, `bytes_max`: of a
    micro-batch, at least one revision; `bytes_max` 0: any. `snapshots`: what compaction removed is replaced by the
    state."""

    start: str | int | Since
    rows_max: int
    bytes_max: int
    snapshots: bool


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Raises BadOption."""
    known = NamedOptions(options)
    return StreamOptions(
        _start(known),
        known.number("maxRowsPerBatch", 100_000, least=1),
        known.number("maxBytesPerBatch", 0),
        _snapshots(known),
    )


def _snapshots(known: NamedOptions) -> bool:
    return bool(known.choice("onCompacted", "fail", ("fail", "snapshot")) == "snapshot")


def _start(known: NamedOptions) -> str | int | Since:
    start = known.text("startingRevision") or "latest"
    if start in ("earliest", "latest"):
        return start
    if start.isdecimal():
        return known.number("startingRevision", 1, least=1)
    try:
        return Since(max(0, moment_ms(start)))
    except BadField:
        raise BadOption(
            f"option startingRevision={start!r} is not earliest, latest, a revision from 1, or a time such as "
            "2026-03-01T06:00Z"
        ) from None


@dataclass(frozen=True, slots=True)
class TableOptions:
    """`columns`: those to read; all if it is empty."""

    access: ClusterAccess
    table: str
    interval: tuple[str, str]
    columns: tuple[str, ...]


OF_TABLES = ("table", "interval")


def table_options(options: Mapping[str, str]) -> TableOptions | None:
    """None: a read of keys. Raises BadOption."""
    known = NamedOptions(options)
    if not known.text("table"):
        if given := [name for name in OF_TABLES if name in known]:
            raise BadOption(f"option {given[0]} is for tables: give option table")
        return None
    known.require(OptionUse.TABLE)
    interval_ = interval_of(known.text("interval"))
    return TableOptions(access_of(options), known.text("table"), interval_, _columns(known))


def _columns(known: NamedOptions) -> tuple[str, ...]:
    names = tuple(name.strip() for name in known.text("columns").split(",") if name.strip())
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise BadOption(f"option columns has {twice[0]!r} twice: give each column once")
    return names


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where a batch is written. `rejects`: a prefix for rejected rows; empty: they fail the batch. `records`: a prefix
    for the records of streaming queries. `stage_ms`: the time of the lease of staged rows."""

    prefix: bytes
    overwrite: bool
    rejects: str
    records: str
    stage_ms: int = STAGE_MS


def target_of(options: Mapping[str, str], overwrite: bool, *, stream: bool = False) -> WriteTarget:
    """Raises BadOption, also for options of reads."""
    known = NamedOptions(options)
    known.require(OptionUse.STREAM_WRITE if stream else OptionUse.WRITE)
    prefix = known.text("prefix")
    if overwrite and not prefix:
        raise BadOption("mode overwrite replaces a prefix: give option prefix")
    records = known.text("recordPrefix") or "pipeline/queries/"
    stage_ms = known.number("stageMs", STAGE_MS, least=STAGE_MS_MIN)
    return WriteTarget(prefix.encode(), overwrite, known.text("rejectsPrefix"), records, stage_ms)


def _key_range(known: NamedOptions) -> tuple[bytes, bytes]:
    bounds = known.text("keyFrom"), known.text("keyTo")
    if "prefix" in known:
        if any(bounds):
            raise BadOption("give prefix, or keyFrom and keyTo")
        key, end = interval(known.text("prefix"), b"", True)
        return key or b"\0", end
    if bounds[1] and bounds[1] <= bounds[0]:
        raise BadOption(f"keyTo={bounds[1]!r} is not after keyFrom={bounds[0]!r}")
    return bounds[0].encode() or b"\0", bounds[1].encode() or b"\0"
