"""The reason of a network error, as a person reads it: "connection refused", never empty, no Python. Pure."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl

NO_ANSWER = "no answer"
"""The reason at an address that has not responded so far."""
_OF_OPENSSL = re.compile(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$")


def reason_of(error: BaseException) -> str:
    """The reason in lower case, without address and errno."""
    inner = getattr(error, "os_error", None)
    if isinstance(inner, OSError) and inner is not error:
        return reason_of(inner)
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    if isinstance(error, socket.gaierror):
        return _lower(error.strerror or "the host name cannot be resolved")
    if isinstance(error, ssl.SSLError):
        return _OF_OPENSSL.sub("", str(error)) or "TLS failed"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return _lower(os.strerror(error.errno))
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return (
            f"{json_reason(error)} at line {error.lineno}, column {error.colno}" if error.doc.strip() else "it is empty"
        )
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error)
    if isinstance(error, OSError) and "Connect call failed" in text:
        return "connection refused" if "[Errno 111]" in text else "no connection"
    return text or type(error).__name__


def json_reason(error: json.JSONDecodeError) -> str:
    ends = error.msg.startswith("Unterminated string") or not error.doc[error.pos :].strip()
    return "the JSON is incomplete" if ends else "unexpected text"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
