"""What is refused before it is proposed: the same checks as for other APIs, on commands that are encoded already.

A plain put, which most commands are, is checked without making a value of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from metastore.codec import PLAIN_PUT, RANGE, decode_fields, decode_operation, pack, unpack_command
from metastore.errors import InvalidRequest
from metastore.exactly_once import SEQUENCE_MAX
from metastore.limits import Limits
from metastore.put_series import is_series, keeps_limits, singles
from metastore.requests import (
    Compact,
    DeleteRange,
    DisarmAlarm,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Pin,
    Put,
    Range,
    Txn,
    Unpin,
)
from metastore.validation import check_request, check_request_id
from service.strict_commands import OWN, any_strict, is_strict
from service.strict_responses import StrictAnswers

CLIENT_COMMANDS = (
    Put, DeleteRange, Txn, Compact, LeaseGrant, LeaseRevoke, LeaseKeepAlive, DisarmAlarm, Pin, Unpin,
)  # fmt: skip
"""What a client may propose; the rest is proposed by the leader alone."""
PLAIN_PUT_EXTRA_BYTES = 512


class Checked(NamedTuple):
    """A command; `number` and `puts`: the requests that it answers, successive ones. `refusal`: it is not proposed.

    `strict`: it touches a strict region, so its answer waits for the release."""

    number: int
    puts: int
    command: bytes
    refusal: Exception | None
    strict: bool = False


def checked(number: int, command: Any, limits: Limits, strict: StrictAnswers | None = None) -> Iterator[Checked]:
    """What of it can be proposed, or why not: for each put of a series apart, if something is wrong with one."""
    try:
        fields = unpacked(command)
    except InvalidRequest as error:
        yield Checked(number, 1, command, error)
        return
    if not is_series(fields):
        yield checked_single(number, command, fields, limits, strict)
    elif keeps_limits(fields, limits):
        keys = fields[2][::2]
        touches = strict is not None and any_strict(keys, strict.prefixes)
        if touches and any_strict(keys, (OWN,)):
            for place, single in enumerate(singles(fields), number):
                yield checked_single(place, pack(single), single, limits, strict)
        else:
            yield Checked(number, len(keys), command, None, touches)
    else:
        for place, single in enumerate(singles(fields), number):
            yield checked_single(place, pack(single), single, limits, strict)


def checked_single(number: int, command: bytes, fields: Any, limits: Limits, strict: StrictAnswers | None) -> Checked:
    refusal = refusal_of_fields(fields, limits)
    if refusal is not None or strict is None:
        return Checked(number, 1, command, refusal)
    if fields[0] == PLAIN_PUT:
        key = fields[2]
        if not key.startswith(strict.prefixes):
            return Checked(number, 1, command, None)
    request, _ = decode_fields(fields)
    touches = is_strict(request, strict.prefixes)
    try:
        strict.check_user(request)
    except InvalidRequest as error:
        return Checked(number, 1, command, error)
    return Checked(number, 1, command, None, touches)


def unpacked(command: Any) -> Any:
    """Raises InvalidRequest."""
    if type(command) is not bytes:
        raise InvalidRequest(f"a command is bytes, not {type(command).__name__}")
    return unpack_command(command)


def refusal_of_fields(fields: Any, limits: Limits) -> Exception | None:
    if (
        type(fields) is list
        and len(fields) == 4
        and fields[0] == PLAIN_PUT
        and type(fields[0]) is int
        and is_plain(fields, limits)
    ):
        return None
    try:
        check_fields(fields, limits)
    except Exception as error:
        return error
    return None


def check_fields(fields: Any, limits: Limits) -> None:
    """Raises the refusal of a command that a client may not propose, or that could not be applied."""
    request, request_id = decode_fields(fields)
    if not isinstance(request, CLIENT_COMMANDS):
        raise InvalidRequest(f"{type(request).__name__} is proposed by the leader alone: clients can't send it")
    check_request(request, limits)
    if request_id is not None:
        check_request_id(request_id, limits)


def is_plain(fields: list[Any], limits: Limits) -> bool:
    """Whether nothing can be wrong with this put; the long way says what is, or that it is only unusual."""
    _, rid, key, value = fields
    if (
        type(key) is not bytes
        or type(value) is not bytes
        or not 0 < len(key) <= limits.key_bytes_max
        or len(value) > limits.value_bytes_max
        or len(key) + len(value) + PLAIN_PUT_EXTRA_BYTES > limits.request_bytes_max
    ):
        return False
    if rid is None:
        return True
    if type(rid) is not list or len(rid) != 2 or type(rid[0]) is not str or type(rid[1]) is not int:
        return False
    client, sequence = rid
    return client.isascii() and 1 <= len(client) <= limits.client_bytes_max and 1 <= sequence <= SEQUENCE_MAX


def read_range(fields: Any, limits: Limits) -> Range:
    """The range that a READS frame holds. Raises the refusal."""
    request = decode_operation(fields, 0)
    if not isinstance(request, Range):
        raise InvalidRequest(f"a read is a range (operation {RANGE})")
    check_request(request, limits)
    return request
