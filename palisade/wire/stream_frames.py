"""The frames between a client and a node on the stream.

Frames are those of `base.frames`: length, kind, checksum, one msgpack value. The client opens with HELLO and receives
WELCOME or REFUSED. Then it numbers its requests freely (0 to 2^63 - 1, unique among the open ones), and answers arrive
in any order. Frequent messages share a frame, as a flat list [number, content, number, content, ...].

Flow control: a node reads no further while `IN_FLIGHT_MAX` requests of a connection are unanswered, or while the client
does not read. A watch sends only as many batches as the client has granted (`MORE`).
"""

from __future__ import annotations

import enum

PROTOCOL = 3
"""Incremented when a frame changes its meaning. A node refuses other versions, and names its own."""

FRAME_BYTES_EXTRA = 1024 * 1024
"""A frame may exceed the largest request by this much: a client gathers up to 256 KiB of keys and values into a frame,
and numbers and request ids add to that, however small the limit of a request is."""
ITEMS_MAX = 4096
"""Maximum requests or answers in one frame."""
IN_FLIGHT_MAX = 4096
WATCH_CREDIT = 8
"""Initial credit of a watch: batches sent and not yet acknowledged."""


class FrameKind(enum.IntEnum):
    """Kinds of frames and their bodies. C: sent by clients, N: by nodes."""

    HELLO = 1
    """C {"protocol": int, "client": str, "timeout_ms": int, "waited_ms": int, "follows": bool, credentials}: the node's
    deadline ends before the client's, so that the client receives the outcome of its request. `waited_ms`: how long the
    oldest request has waited for this connection. `follows`: report changes of leader."""
    WELCOME = 2
    """N {"protocol", "cluster", "member", "leader": str or nil, "streams": {member: "host:port"}, "limits":
    {"request_bytes", "value_bytes"}}: a client refuses a larger request itself, because a frame above the limit ends
    the connection. After a HELLO with "identify": true, which carries no credentials: {"protocol", "cluster",
    "cluster_id"}, and the node closes."""
    REFUSED = 3
    """N {"reason": str, "code": str if known, "unanswered_not_executed": bool, "waits_for_init": bool}: the node closes
    the connection. `unanswered_not_executed`: it executes no request of this connection to which it has sent no answer.
    `waits_for_init`: it is not part of a cluster yet."""
    WRITES = 4
    """C [number, command, ...]: commands in the encoding of `metastore.command_codec`. A series
    (`metastore.put_series`) takes one of consecutive numbers per put, and each put may fail separately. A frame has at
    most ITEMS_MAX puts, those in series included."""
    READS = 5
    """C [number, range, ...]: ranges as lists, encoded as inside a transaction (`metastore.command_codec`)."""
    RESULTS = 6
    """N [number, result, ...]: results encoded by `metastore.command_codec`, refusals of the store included."""
    FAILURES = 7
    """N [number, [code, text, revision], ...]: codes of `wire.error_codes`, and its `named_revision`."""
    CALL = 8
    """C [number, method, [argument, ...]]: all infrequent requests."""
    ANSWER = 9
    """N [number, value]"""
    WATCH = 10
    """C [number, key, range_end, start_revision, prev_kv, [filter, ...], progress_ms, credit]"""
    WATCHING = 11
    """N [number, next_revision, [cluster id, generation] or nil]: the watch has begun; nothing at or above
    next_revision is skipped. Sent again before the next events or progress if the history of the node has changed. A
    client that knows another history stops the watch: its revisions mean something else here."""
    EVENTS = 12
    """N [number, [[revision, [[delete, kv, prev_kv or nil], ...]], ...]]"""
    PROGRESS = 13
    """N [number, revision]: every event up to the revision was sent."""
    MORE = 14
    """C [number, batches]: the node may send this many more batches."""
    UNWATCH = 15
    """C [number]"""
    WATCH_ENDED = 16
    """N [number, code, text, minimal_revision]"""
    LEADER = 17
    """N [member, leader or nil, {member: "host:port"}]: this member's knowledge of the leader has changed."""
    FENCE = 18
    """Both ways, between lease holders and the leader (`fence_messages.py`). Not used by other clients."""
