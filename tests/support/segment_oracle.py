"""What a lookup of segments must answer, computed from the committed rows moment by moment (S1 to S3, issue 17).

Independent of the product: nothing of it is imported, keys and values are decoded here, and no state is kept between
two calls. Slow and obvious: for each stretch of time without an edge of any segment, every chunk is examined.

The rules, from seed 003:

- A record counts if it is used and its publication is visible: its generation was taken and is not pending.
- A segment is settled if its replication factor is 0, or if its record says loaded.
- A chunk is all segments of one interval and version. It is complete once every partition below its number of core
  partitions is settled. Settled partitions beyond them belong to its answer.
- At each moment the complete chunk with the highest version answers, whether or not its segments have servers.
- A settled segment of that chunk is unserved (factor 0), served (some node announces it), or missing.
- A segment with an ingester and without a digest grows: it is one segment, as it is after its hand-off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

ROOT = "palisade/segments/"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Name(NamedTuple):
    data_source: str
    start_ms: int
    end_ms: int
    version: int
    partition: int


class Served(NamedTuple):
    """A segment, the part of its interval that it answers for, its servers, and whether it grows."""

    name: Name
    start_ms: int
    end_ms: int
    nodes: tuple[str, ...]
    grows: bool


class Expected(NamedTuple):
    """`parts` in order of time, then of partitions. The others once each, in the order in which they are reached."""

    parts: tuple[Served, ...]
    missing: tuple[Name, ...]
    unserved: tuple[Name, ...]


Chunk = tuple[int, int, int]
"""Version, start, end."""


def expected(rows: Mapping[bytes, bytes], data_source: str, start_ms: int, end_ms: int) -> Expected | None:
    """`rows`: all below palisade/segments/ as of one revision. None if no segment was ever published."""
    manifest = rows.get(f"{ROOT}manifests/{data_source}".encode())
    if manifest is None or not json.loads(manifest)["last"]:
        return None
    records = visible_records(rows, data_source, json.loads(manifest))
    chunks = sorted({(name.version, name.start_ms, name.end_ms) for name in records})
    complete = [chunk for chunk in chunks if is_complete(chunk, records)]
    parts: list[Served] = []
    missing: list[Name] = []
    unserved: list[Name] = []
    for piece_start_ms, piece_end_ms, chunk in pieces(complete, start_ms, end_ms):
        for name in sorted(name for name in records if of_chunk(name, chunk) and is_settled(records[name])):
            nodes = servers(rows, name)
            if not records[name]["replicas"]:
                unserved.append(name)
            elif nodes:
                parts.append(Served(name, piece_start_ms, piece_end_ms, nodes, grows(records[name])))
            else:
                missing.append(name)
    return Expected(tuple(parts), once(missing), once(unserved))


def pieces(complete: list[Chunk], start_ms: int, end_ms: int) -> list[tuple[int, int, Chunk]]:
    """The chunk that answers for each stretch of time; adjacent stretches of one chunk are one."""
    edges = {edge for _, *chunk in complete for edge in chunk if start_ms < edge < end_ms}
    found: list[tuple[int, int, Chunk]] = []
    for since_ms, until_ms in pairwise([start_ms, *sorted(edges), end_ms]):
        covering = [chunk for chunk in complete if chunk[1] <= since_ms < chunk[2]]
        if not covering:
            continue
        chunk = max(covering)
        if found and found[-1][1:] == (since_ms, chunk):
            since_ms = found.pop()[0]
        found.append((since_ms, until_ms, chunk))
    return found


def visible_records(
    rows: Mapping[bytes, bytes], data_source: str, manifest: Mapping[str, Any]
) -> dict[Name, dict[str, Any]]:
    found = {}
    for key, value in rows.items():
        name = name_in(key, f"{ROOT}records/")
        if name is not None and name.data_source == data_source:
            record = json.loads(value)
            taken = record["generation"] <= manifest["last"] and record["generation"] not in manifest["pending"]
            if taken and record["used"]:
                found[name] = record
    return found


def records_of(rows: Mapping[bytes, bytes], data_source: str) -> dict[Name, dict[str, Any]]:
    """The used and visible ones."""
    manifest = json.loads(rows[f"{ROOT}manifests/{data_source}".encode()])
    return visible_records(rows, data_source, manifest)


def is_complete(chunk: Chunk, records: Mapping[Name, Mapping[str, Any]]) -> bool:
    members = {name.partition: record for name, record in records.items() if of_chunk(name, chunk)}
    (core,) = {record["core_partitions"] for record in members.values()}
    return all(number in members and is_settled(members[number]) for number in range(core))


def is_settled(record: Mapping[str, Any]) -> bool:
    return bool(record["replicas"] == 0 or record["loaded"])


def grows(record: Mapping[str, Any]) -> bool:
    return bool(record.get("ingester")) and not record["digest"]


def of_chunk(name: Name, chunk: Chunk) -> bool:
    return (name.version, name.start_ms, name.end_ms) == chunk


def servers(rows: Iterable[bytes], name: Name) -> tuple[str, ...]:
    announced = f"{ROOT}announced/".encode()
    found = (key[len(announced) :].partition(b"/") for key in rows if key.startswith(announced))
    return tuple(sorted(node.decode() for node, _, rest in found if name_in(rest) == name))


def once(names: Iterable[Name]) -> tuple[Name, ...]:
    return tuple(dict.fromkeys(names))


def name_in(key: bytes, prefix: str = "") -> Name | None:
    """<prefix><data source>/<start>/<end>/<version>/<partition>; None for another key."""
    text = key.decode()
    if not text.startswith(prefix):
        return None
    data_source, start, end, version, partition = text[len(prefix) :].split("/")
    return Name(data_source, in_ms(start), in_ms(end), int(version), int(partition))


def in_ms(time: str) -> int:
    return (datetime.fromisoformat(time) - EPOCH) // timedelta(milliseconds=1)


def as_answered(answer: Any) -> Expected:
    """A `SegmentAnswer` of the product, in the terms of this file."""

    def name(segment: Any) -> Name:
        interval = segment.id.interval
        return Name(segment.data_source, interval.start_ms, interval.end_ms, segment.id.version, segment.id.partition)

    return Expected(
        tuple(
            Served(name(part.segment), part.start_ms, part.end_ms, part.nodes, part.realtime) for part in answer.parts
        ),
        tuple(map(name, answer.missing)),
        tuple(map(name, answer.unserved)),
    )
