"""What a client and a node say to each other on the stream.

Frames are those of `base.frames`: length, kind, checksum, one msgpack value. The client opens with HELLO and hears
WELCOME or REFUSED. After that it numbers its requests as it likes (0 to 2^63 - 1, none twice at a time), and answers
come in any order. What is frequent travels many to a frame, as a flat list [number, content, number, content, ...].

Flow control: a node reads no further while `IN_FLIGHT_MAX` requests of a connection are not answered, or while the
client does not read. A watch sends no more batches than the client has granted it (`MORE`).
"""

from __future__ import annotations

import enum

PROTOCOL = 2
"""Raised when a frame changes its meaning. A node refuses what it does not speak, and says what it does."""

FRAME_BYTES_EXTRA = 1024 * 1024
"""A frame may be this much larger than the largest request: a client gathers 256 KiB of keys and values, and what
belongs to them comes on top (numbers, request ids), before it sends them; however small the limit of a request is."""
ITEMS_MAX = 4096
"""Most requests or answers in one frame."""
IN_FLIGHT_MAX = 4096
WATCH_CREDIT = 8
"""Batches that a watch may have under way at first."""


class FrameKind(enum.IntEnum):
    """Kinds of frames and their bodies. C: sent by clients, N: by nodes."""

    HELLO = 1
    """C {"protocol": int, "client": str, "timeout_ms": int, "follows": bool}: the node gives up before such a client
    does, so that the client hears what became of its request. `follows`: it wants to hear of changes of leader."""
    WELCOME = 2
    """N {"protocol", "cluster", "member", "leader": str or nil, "streams": {member: "host:port"}}. After a HELLO with
    "identify": true, which carries no credentials: {"protocol", "cluster", "cluster_id"}, and the node closes."""
    REFUSED = 3
    """N {"reason": str}: the connection ends."""
    WRITES = 4
    """C [number, command, ...]: commands in the encoding of `metastore.command_codec`. A series
    (`metastore.put_series`) takes as many successive numbers as it has puts, and each of these may fail for itself. A
    frame has at most ITEMS_MAX puts, those in series included."""
    READS = 5
    """C [number, range, ...]: ranges as lists, as `metastore.command_codec` writes them inside of transactions."""
    RESULTS = 6
    """N [number, result, ...]: results as `metastore.result_codec` writes them, refusals of the store included."""
    FAILURES = 7
    """N [number, [code, text, revision], ...]: codes of `wire.error_codes`, and its `named_revision`."""
    CALL = 8
    """C [number, method, [argument, ...]]: everything that is rare."""
    ANSWER = 9
    """N [number, value]"""
    WATCH = 10
    """C [number, key, range_end, start_revision, prev_kv, [filter, ...], progress_ms, credit]"""
    WATCHING = 11
    """N [number, next_revision, [cluster id, generation] or nil]: the watch has begun; nothing below next_revision is
    missing. Again, in front of the next events or progress, when the node is of another history than it said. A client
    that was told of another one before does not go on: its revisions mean something else here."""
    EVENTS = 12
    """N [number, [[revision, [[delete, kv, prev_kv or nil], ...]], ...]]"""
    PROGRESS = 13
    """N [number, revision]: every event up to it was sent."""
    MORE = 14
    """C [number, batches]: the client has room for so many more."""
    UNWATCH = 15
    """C [number]"""
    WATCH_ENDED = 16
    """N [number, code, text, minimal_revision]"""
    LEADER = 17
    """N [member, leader or nil, {member: "host:port"}]: what this member knows of who leads has changed."""
    FENCE = 18
    """Both ways, between lease holders and the leader (`fence_messages.py`). Other clients never send it."""
