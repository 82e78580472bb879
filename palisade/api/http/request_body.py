"""Reads requests of /v1: bodies, JSON objects and query parameters. Every error names the field."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from palisade.api.http.fast_path import HttpLimits
from palisade.api.http.protobuf_json import INT64_MAX, BadJson, FloatText, read_single
from palisade.base.content import from_base64
from palisade.metastore.requests import RequestId
from palisade.wire.error_codes import BadRequest

HTTP_LIMITS = web.AppKey("http_limits", HttpLimits)
JSON_TYPE = "application/json"
SHOWN = 60

Read = Callable[[Any, str], Any]


async def read_body(request: web.Request) -> bytes:
    """The whole body. Raises TimeoutError; BadRequest if the body's encoding differs from its header;
    HTTPRequestEntityTooLarge, for a declared size before the body is read."""
    limits, announced = request.app[HTTP_LIMITS], request.content_length
    if announced is not None and announced > limits.body_bytes_max:
        raise web.HTTPRequestEntityTooLarge(limits.body_bytes_max, announced)
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            return await request.read()
    except web.RequestPayloadError as error:
        raise BadRequest(encoding_mismatch(error)) from None


def encoding_mismatch(error: web.RequestPayloadError) -> str:
    return f"the body's encoding differs from its Content-Encoding header: {' '.join(str(error).split())[:200]}"


async def read_json(request: web.Request) -> Any:
    """The JSON value of the body; None for an empty one."""
    if request.can_read_body and request.content_type != JSON_TYPE:
        raise web.HTTPUnsupportedMediaType(text=f"the body is {request.content_type}; send {JSON_TYPE}")
    try:
        return read_single(await read_body(request))
    except BadJson as error:
        raise BadRequest(f"the body cannot be read: {error}") from None


def a_number(value: Any, name: str) -> int:
    """A whole number of 64 bits, as a number or as text (also 0x...)."""
    try:
        if isinstance(value, str) and not isinstance(value, FloatText):
            number = int(value, 16) if value.lower().startswith("0x") else int(value)
        elif type(value) is int:
            number = value
        else:
            raise ValueError
    except ValueError:
        raise BadRequest(f"{name}: {shown(value)} is not a whole number") from None
    if abs(number) > INT64_MAX:
        raise BadRequest(f"{name}: {shown(value)} does not fit in 64 bits")
    return number


def a_count(value: Any, name: str) -> int:
    """As `a_number`, 0 or more."""
    number = a_number(value, name)
    if number < 0:
        raise BadRequest(f"{name}: {number} is negative; give 0 or more")
    return number


def a_time(value: Any, name: str) -> float:
    """Seconds, with a fraction if needed; also as text."""
    try:
        seconds = float(value) if type(value) in (int, float, str, FloatText) else math.nan
    except (ValueError, OverflowError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise BadRequest(f"{name}: {shown(value)} is not a number of seconds")
    return seconds


def a_flag(value: Any, name: str) -> bool:
    if value is True or value in ("true", "1", ""):
        return True
    if value is False or value in ("false", "0"):
        return False
    raise BadRequest(f"{name}: {shown(value)} is neither true nor false")


def a_text(value: Any, name: str) -> str:
    if type(value) is not str:
        raise BadRequest(f"{name}: {shown(value)} is not a text")
    return value


def a_list(value: Any, name: str) -> list[Any]:
    if type(value) is not list:
        raise BadRequest(f"{name}: {shown(value)} is not a list")
    return value


def one_of(choices: Mapping[str, Any]) -> Read:
    def read(value: Any, name: str) -> Any:
        found = choices.get(value) if isinstance(value, str) else None
        if found is None:
            raise BadRequest(f"{name}: {shown(value)} is not one of {', '.join(choices)}")
        return found

    return read


def content(value: Any, name: str) -> bytes:
    """Text as UTF-8."""
    try:
        return a_text(value, name).encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{name}: is not valid Unicode; give {name}_base64 instead") from None


def content_base64(value: Any, name: str) -> bytes:
    try:
        return from_base64(a_text(value, name)) if value else b""
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from None


Spec = Mapping[str, Read]


def fields_of(value: Any, spec: Spec, place: str = "the body") -> dict[str, Any]:
    """The fields of a JSON object. A field that `content` reads may also be given as `<name>_base64`.

    `place` is the prefix of field names in errors. Raises BadRequest for a field that is not in `spec`.
    """
    if type(value) is not dict:
        raise BadRequest(f"{place}: {shown(value)} is not an object")
    found: dict[str, Any] = {}
    for given, inner in value.items():
        name, read = _reader(given, spec, place)
        if name in found:
            raise BadRequest(f"{place}: give either {name} or {name}_base64")
        if inner is not None:
            found[name] = read(inner, given if place == "the body" else f"{place}: {given}")
    return found


def _reader(given: str, spec: Spec, place: str) -> tuple[str, Read]:
    read = spec.get(given)
    if read is not None:
        return given, read
    name = given.removesuffix("_base64")
    if name != given and spec.get(name) is content:
        return name, content_base64
    raise BadRequest(f"{place}: there is no field {shown(given)}; known are {', '.join(spec)}")


def query_of(request: web.Request, spec: Spec) -> dict[str, Any]:
    """The query parameters, read like the fields of an object. Raises BadRequest."""
    given: dict[str, Any] = {}
    for name, value in request.query.items():
        if name in given:
            raise BadRequest(f"the query: {shown(name)} is given twice")
        given[name] = value
    return fields_of(given, spec, "the query")


def request_id_of(request: web.Request) -> RequestId | None:
    """`Idempotency-Key: <client>/<sequence>`: the write is executed once, however often it is sent (M3)."""
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return None
    client, slash, sequence = header.strip().strip('"').rpartition("/")
    if not slash or not client or not (sequence.isascii() and sequence.isdigit()) or len(sequence) > 18:
        raise BadRequest(
            f"Idempotency-Key: {shown(header)} is not <client>/<sequence>, such as 'importer-7/42': the client's own "
            "name and a number that it uses for one write only, each larger than the one before"
        )
    return RequestId(client, int(sequence))


def shown(value: Any) -> str:
    text = repr(str(value) if isinstance(value, FloatText) else value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
