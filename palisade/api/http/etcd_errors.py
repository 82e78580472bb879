"""Failed requests in etcd's JSON (`etcd_keys.py`)."""

from __future__ import annotations

import json
import logging

from palisade.api.http.protobuf_json import BadJson
from palisade.base.errors import PalisadeError
from palisade.wire.error_codes import INTERNAL, etcd_words, refusal_of

log = logging.getLogger(__name__)


class Unimplemented(PalisadeError):
    """etcd supports it, this node does not."""

    code = "unimplemented"


def error_fields(message: str, code: int) -> bytes:
    text = json.dumps(message)
    return f'{{"error":{text},"message":{text},"code":{code}}}'.encode()


def refused(error: Exception) -> tuple[int, bytes]:
    """(status, body) of a failed request; unexpected errors are logged."""
    if isinstance(error, BadJson):
        return 400, error_fields(str(error), 3)
    if isinstance(error, Unimplemented):
        return 501, error_fields(f"palisade: {error}", 12)
    if refusal_of(error) is INTERNAL:
        log.error("a request failed", exc_info=error)
    message, code, status = etcd_words(error)
    return status, error_fields(message, code)
