"""palisade get and range with --at: reads from one node's vault through its fence, over HTTP."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

from palisade.cli.http_request import ask, run_or_fail
from palisade.cli.session import CliSession
from palisade.metastore.requests import FROM_KEY, prefix_end
from palisade.metastore.results import KeyValue


def get_at(session: CliSession, at: str, key: bytes) -> dict[str, Any]:
    """Shape `FencedKey` of the API. A missing key ends the process with exit code 1."""
    path = f"/v1/fenced/{quote_from_bytes(key, safe='')}"
    found: dict[str, Any] = run_or_fail(session, ask(at, path, timeout_s=session.deadline_s), at)
    return found


def range_at(session: CliSession, at: str, key: bytes, end: bytes, *, prefix: bool, **options: Any) -> dict[str, Any]:
    """Shape `FencedRange` of the API."""
    if prefix:
        key, end = key or FROM_KEY, prefix_end(key)
    query = {"key_base64": base64.b64encode(key).decode()}
    if end:
        query["range_end_base64"] = base64.b64encode(end).decode()
    query |= {name: str(value).lower() for name, value in options.items() if value}
    path = f"/v1/fenced?{urlencode(query)}"
    found: dict[str, Any] = run_or_fail(session, ask(at, path, timeout_s=session.deadline_s), at)
    return found


def key_value(shape: dict[str, Any]) -> KeyValue:
    create, mod, version = (shape[name] for name in ("create_revision", "mod_revision", "version"))
    return KeyValue(_content(shape, "key"), _content(shape, "value"), create, mod, version, int(shape.get("lease", 0)))


def _content(shape: dict[str, Any], name: str) -> bytes:
    return shape[name].encode() if name in shape else base64.b64decode(shape[f"{name}_base64"])
