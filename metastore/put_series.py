"""Consecutive plain puts of one client as one command: their common fields are encoded once.

A series is an encoding, not a transaction: each of its puts has its own revision, request id and result, and is applied
as if it had come alone. [PUT_SERIES, [client, first sequence] or nil, [key, value, key, value, ...]]; the sequences of
the others follow consecutively. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palisade.metastore.command_codec import EACH, PLAIN_PUT, PUT_RESULT, PUT_SERIES, SERIES, Wire, pack
from palisade.metastore.limits import Limits
from palisade.metastore.request_results import SEQUENCE_MAX

SERIES_PUTS_MAX = 1024


def encode_series(request_id: tuple[str, int] | None, contents: Sequence[bytes]) -> bytes:
    """`request_id`: (client, sequence) of the first put; `contents`: key, value, key, value..."""
    return pack((PUT_SERIES, request_id, contents))


def is_series(fields: Any) -> bool:
    """Whether the msgpack value of a command has the shape of a series."""
    if type(fields) is not list or len(fields) != 3 or fields[0] != PUT_SERIES or type(fields[0]) is not int:
        return False
    _, request_id, contents = fields
    if type(contents) is not list or not 2 <= len(contents) <= 2 * SERIES_PUTS_MAX or len(contents) % 2:
        return False
    return request_id is None or is_request_id(request_id, len(contents) // 2)


def is_request_id(request_id: Any, puts: int) -> bool:
    if type(request_id) is not list or len(request_id) != 2:
        return False
    client, sequence = request_id
    return type(client) is str and type(sequence) is int and 1 <= sequence <= SEQUENCE_MAX - puts


def keeps_limits(fields: Sequence[Any], limits: Limits) -> bool:
    """Whether every put of a series is within the limits."""
    _, request_id, contents = fields
    if request_id is not None and not (request_id[0].isascii() and 1 <= len(request_id[0]) <= limits.client_bytes_max):
        return False
    return (
        are_bytes(contents)
        and min(map(len, contents[::2])) > 0
        and max(map(len, contents[::2])) <= limits.key_bytes_max
        and max(map(len, contents[1::2])) <= limits.value_bytes_max
        and sum(map(len, contents)) <= limits.request_bytes_max // 2
    )


def are_bytes(contents: Sequence[Any]) -> bool:
    return set(map(type, contents)) == {bytes}


def singles(fields: Sequence[Any], first: int = 0) -> list[list[Any]]:
    """The puts of a series from index `first` on, as msgpack values of commands."""
    _, request_id, contents = fields
    pairs = zip(contents[2 * first :: 2], contents[2 * first + 1 :: 2], strict=True)
    if request_id is None:
        return [[PLAIN_PUT, None, key, value] for key, value in pairs]
    client, sequence = request_id
    return [[PLAIN_PUT, [client, number], key, value] for number, (key, value) in enumerate(pairs, sequence + first)]


def result_of(wires: Sequence[Wire]) -> Wire:
    """The results of its puts as one; in short form if all were put, with consecutive revisions."""
    first = wires[0][1] if wires[0][0] == PUT_RESULT else 0
    regular = all(wire == (PUT_RESULT, first + number) for number, wire in enumerate(wires))
    return (SERIES, first, len(wires)) if first and regular else (EACH, tuple(wires))


def results_in(wire: Sequence[Any]) -> list[Sequence[Any]] | None:
    """The results that `result_of` has combined; None for the result of another command."""
    if wire[0] == SERIES:
        return [(PUT_RESULT, revision) for revision in range(wire[1], wire[1] + wire[2])]
    return list(wire[1]) if wire[0] == EACH else None
