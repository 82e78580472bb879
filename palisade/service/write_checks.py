"""Checks of encoded writes: which are refused before they are proposed, and which strict regions the others touch.

The checks are those of `KeyValues.submit`. A plain put, the most frequent command, is checked without decoding it into
a value; every command is unpacked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from palisade.metastore.command_codec import PLAIN_PUT, RANGE, decode_fields, decode_operation, pack, unpack_command
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.limits import Limits
from palisade.metastore.put_series import is_series, keeps_limits, singles
from palisade.metastore.request_results import SEQUENCE_MAX
from palisade.metastore.requests import (
    Compact,
    CopyChunk,
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
from palisade.metastore.validation import check_request, check_request_id
from palisade.service.authorization.needs import needs_of
from palisade.service.callers import Caller
from palisade.service.pending_write import StrictResponses
from palisade.service.strict_commands import OWN, any_strict

CLIENT_COMMANDS = (
    Put, DeleteRange, Txn, Compact, LeaseGrant, LeaseRevoke, LeaseKeepAlive, DisarmAlarm, Pin, Unpin,
    CopyChunk,
)  # fmt: skip
"""What clients may propose; other commands are proposed by the leader alone."""
PLAIN_PUT_EXTRA_BYTES = 512


class TooManyPuts(InvalidRequest):
    """A frame is one entry of the log, which every replica applies in one turn: the number of its puts is bounded."""


class CheckedWrite(NamedTuple):
    """A command; `number` and `puts`: the consecutive requests that it answers. `refusal`: it is not proposed.

    `strict`: it touches a strict region, so its result waits for the release.
    """

    number: int
    puts: int
    command: bytes
    refusal: Exception | None
    strict: bool = False


class WriteChecks:
    """`lease_keys`: the keys of a lease, as this node knows them."""

    def __init__(
        self,
        limits: Limits,
        strict: StrictResponses | None = None,
        lease_keys: Callable[[int], Iterable[bytes]] = lambda _: (),
    ) -> None:
        self._limits, self._strict, self._lease_keys = limits, strict, lease_keys

    def frame(
        self, numbered: Iterable[tuple[int, Any]], caller: Caller, puts_max: int
    ) -> tuple[list[CheckedWrite], list[CheckedWrite]]:
        """(accepted commands, refused commands). Raises TooManyPuts."""
        accepted: list[CheckedWrite] = []
        refused: list[CheckedWrite] = []
        puts = 0
        for number, command in numbered:
            for write in self.command(number, command, caller):
                puts += write.puts
                if puts > puts_max:
                    raise TooManyPuts(
                        f"a frame may have up to {puts_max} puts, including those in series: send several frames"
                    )
                (accepted if write.refusal is None else refused).append(write)
        return accepted, refused

    def command(self, number: int, command: Any, caller: Caller) -> Iterator[CheckedWrite]:
        """The accepted command, or the refusal: for each put of a series separately, if one of them is invalid."""
        try:
            fields = unpacked(command)
        except InvalidRequest as error:
            yield CheckedWrite(number, 1, command, error)
            return
        if not is_series(fields):
            yield self._single(number, command, fields, caller)
            return
        keys = fields[2][::2]
        whole = keeps_limits(fields, self._limits) and self._may_put(keys, caller)
        strict = whole and self._strict is not None and any_strict(keys, self._strict.prefixes)
        if whole and not (strict and any_strict(keys, (OWN,))):
            yield CheckedWrite(number, len(keys), command, None, strict)
            return
        for place, single in enumerate(singles(fields), number):
            yield self._single(place, pack(single), single, caller)

    @staticmethod
    def _may_put(keys: Sequence[bytes], caller: Caller) -> bool:
        if not caller.is_limited:
            return True
        try:
            caller.require_writes(keys)
        except Exception:
            return False
        return True

    def _single(self, number: int, command: bytes, fields: Any, caller: Caller) -> CheckedWrite:
        try:
            strict = self._check_single(fields, caller)
        except Exception as error:
            return CheckedWrite(number, 1, command, error)
        return CheckedWrite(number, 1, command, None, strict)

    def _check_single(self, fields: Any, caller: Caller) -> bool:
        """Whether it touches a strict region. Raises the refusal."""
        strict = self._strict
        if is_plain(fields, self._limits):
            key = fields[2]
            if caller.is_limited:
                caller.require_write(key)
            if strict is None or not key.startswith(strict.prefixes):
                return False
            request: Any = Put(key, b"")
        else:
            request = self._decoded(fields)
            if caller.is_limited:
                caller.require(needs_of(request, self._lease_keys))
        return strict is not None and strict.classify(request, own=caller.writes_own)

    def _decoded(self, fields: Any) -> Any:
        """Raises the refusal of a command that a client may not propose, or that could not be applied."""
        request, request_id = decode_fields(fields)
        if not isinstance(request, CLIENT_COMMANDS):
            raise InvalidRequest(f"{type(request).__name__} is proposed by the leader alone: clients cannot send it")
        check_request(request, self._limits)
        if request_id is not None:
            check_request_id(request_id, self._limits)
        return request


def unpacked(command: Any) -> Any:
    """Raises InvalidRequest."""
    if type(command) is not bytes:
        raise InvalidRequest(f"a command must be bytes, not {type(command).__name__}")
    return unpack_command(command)


def is_plain(fields: Any, limits: Limits) -> bool:
    """Whether it is a valid plain put; for other commands the full check decides."""
    if type(fields) is not list or len(fields) != 4 or fields[0] != PLAIN_PUT or type(fields[0]) is not int:
        return False
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
    """The range in a READS frame. Raises the refusal."""
    request = decode_operation(fields, 0)
    if not isinstance(request, Range):
        raise InvalidRequest(f"a read is a range (operation {RANGE})")
    check_request(request, limits)
    return request
