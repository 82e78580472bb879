"""Reasons of network errors are text for people (issue 16, items 9 and 13)."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from palisade.base.network_reason import reason_of

CERTIFICATE = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] ..."), "connection refused"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "broken pipe"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (TimeoutError(), "no answer in time"),
        (TimeoutError("no answer within 3 s"), "no answer within 3 s"),
        (ssl.SSLError(1, CERTIFICATE), "certificate verify failed: self-signed certificate"),
        (ssl.SSLError(1, ""), "TLS failed"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a"), "no such file or directory"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "it is not UTF-8"),
        (ConnectionError("n1 does not listen yet"), "n1 does not listen yet"),
    ],
)
def test_reason_of_a_network_error_is_text_without_codes(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_reason_of_a_wrapped_error_is_that_of_the_error_inside() -> None:
    outer = OSError("Cannot connect to host a:1 ssl:default")
    outer.os_error = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed")  # type: ignore[attr-defined]
    assert reason_of(outer) == "connection refused"
