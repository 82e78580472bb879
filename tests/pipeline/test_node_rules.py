"""The job `retention` reads TTL rules through the fence of any node, and of none that is fenced (issue 18)."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from palisade.pipeline.node_rules import read_rules
from palisade.segments.retention import END, FIRST, RulesUnknown
from tests.support.threaded_node import unused_address

FENCED = 503, {"detail": "n1 is FENCED: its lease has expired"}
GOOD = 200, {"answered_by": "vault", "more": False, "kvs": [{"key": "ttl/demo", "value": "{}"}]}
DEFAULT = 200, {"answered_by": "default", "more": False, "kvs": []}

Serve = Callable[[tuple[int, Any]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a node that answers each request so; returns its address."""
    with ExitStack() as stack:

        def started(answer: tuple[int, Any]) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    asked = urlsplit(self.path)
                    bounds = {name: b64decode(value) for name, (value,) in parse_qs(asked.query).items()}
                    assert (asked.path, bounds) == ("/v1/fenced", {"key_base64": FIRST, "range_end_base64": END})
                    body = json.dumps(answer[1]).encode()
                    self.send_response(answer[0])
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, *_: object) -> None:
                    pass

            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            return f"127.0.0.1:{server.server_port}"

        yield started


def test_node_that_is_fenced_down_or_answers_by_a_default_is_passed_over(serve: Serve) -> None:
    addresses = [unused_address(), serve(FENCED), serve(DEFAULT), serve(GOOD)]
    assert read_rules(addresses, None).rows == {b"ttl/demo": b"{}"}


def test_rules_are_unknown_while_every_node_is_fenced(serve: Serve) -> None:
    """Thus nothing counts as expired, and each segment is skipped (`test_expiry.py`)."""
    down, fenced = unused_address(), serve(FENCED)
    with pytest.raises(RulesUnknown, match=f"no node can answer .*{down}: .*{fenced}: n1 is FENCED"):
        read_rules([down, fenced], None)
    with pytest.raises(RulesUnknown, match="no address"):
        read_rules([], None)
