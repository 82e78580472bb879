"""palisade init waits for the nodes within its deadline (issue 16)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from palisade.base.http_request import HttpRequests
from palisade.cli.main import main
from palisade.wire.credentials import Password, header_of, node_proof

LATER = {"code": "unavailable", "detail": "the cluster is being founded: try again"}
HANGS: dict[str, object] = {}
"""The response of a node that takes longer than any deadline here."""
DONE = {"initialized": True, "members": ["n1"]}


@contextmanager
def node_with(
    *responses: tuple[int, dict[str, object]], logins: tuple[int, ...] = (200,)
) -> Iterator[tuple[str, list[int]]]:
    """(address, the statuses sent) of a server with these responses; the last one is repeated. `logins`: the statuses
    of its responses to GET."""
    sent: list[int] = []
    asked: list[str] = []
    ends = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(logins[min(len(asked), len(logins)) - 1])
            self.end_headers()
            self.wfile.write(b"{}")

        def do_POST(self) -> None:
            status, shape = responses[min(len(sent), len(responses) - 1)]
            sent.append(status)
            self.rfile.read(int(self.headers["Content-Length"]))
            if shape is HANGS:
                ends.wait()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(shape).encode())

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", sent
    finally:
        ends.set()
        server.shutdown()
        thread.join()
        server.server_close()


def init(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, ["init", "n1", *arguments], env=environ)


def test_init_is_repeated_until_the_nodes_are_there() -> None:
    """It had exit code 3 right after the nodes were ready."""
    with node_with((503, LATER), (503, LATER), (200, DONE)) as (at, sent):
        result = init("--at", at)
    assert (result.exit_code, result.stdout, sent) == (0, "initialized: n1\n", [503, 503, 200])


def test_init_ends_at_its_deadline() -> None:
    with node_with((503, LATER)) as (at, sent):
        result = init("--at", at, "--timeout", "0.7", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stderr)["error"] == {"code": "unavailable", "message": LATER["detail"], "retry": True}
    assert 2 <= len(sent) <= 4


def with_addresses(**http: str) -> dict[str, object]:
    addresses = {name: {"http": at, "stream": at} for name, at in http.items()}
    return {"initialized": True, "members": list(http), "addresses": addresses}


def test_init_returns_once_all_members_answer() -> None:
    """`palisade status` right after it had exit code 3: no node listened (field report)."""
    with (
        node_with((503, LATER), logins=(404, 503, 200)) as (member, _),
        node_with((200, with_addresses(n1=member))) as (at, _),
    ):
        result = init("--at", at, "--json", "--timeout", "3600")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {"initialized": True, "members": ["n1"]}


def test_init_names_the_members_that_do_not_answer_until_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.cli.waiting.NOTICE_S", 0.2)
    with (
        node_with((503, LATER), logins=(404,)) as (member, _),
        node_with((200, with_addresses(n1=member, n2="127.0.0.1:9"))) as (at, _),
    ):
        result, with_json = (init("--at", at, "--timeout", "1", *options) for options in ((), ("--json",)))
    assert (result.exit_code, result.stdout) == (0, "initialized: n1, n2\n")
    silent = f"n1 at {member} (it has not become a member yet), n2 at 127.0.0.1:9 (connection refused)"
    first, *_, last = result.stderr.splitlines()
    assert first.startswith("palisade: waiting: initialized; no answer yet from n1")
    assert last == (f"palisade: these members do not answer yet: {silent}; 'palisade status' shows which nodes answer")
    assert list(json.loads(with_json.stdout)["silent"]) == ["n1", "n2"]


def test_init_that_is_refused_is_not_repeated() -> None:
    with node_with((409, {"code": "already-initialized", "detail": "with n2"})) as (at, sent):
        assert init("--at", at).exit_code == 1
    assert sent == [409]


@pytest.mark.parametrize(("third", "text"), [("other-plan", ""), ("no-answer", "n3: did not answer\n")])
def test_cancel_prints_the_result_at_each_node(third: str, text: str) -> None:
    """It printed "cancelled: n1, n2, n3" (issue 16)."""
    outcomes = {"n1": "cancelled", "n2": "not-prepared", "n3": third}
    shape = {"cancelled": not text, "members": ["n1", "n2", "n3"], "nodes": outcomes}
    with node_with((200, shape)) as (at, _):
        result, with_json = (init("n2", "n3", "--cancel", "--at", at, *options) for options in ((), ("--json",)))
    assert result.exit_code == with_json.exit_code == (3 if text else 0)
    assert result.stdout.startswith("n1: cancelled\nn2: was not prepared\nn3: ")
    assert result.stdout.endswith(text)
    assert json.loads(with_json.stdout) == shape
    if text:
        assert "no answer from n3" in result.stderr
        assert "Repeat the command when it is back" in result.stderr
        error = json.loads(with_json.stderr)["error"]
        assert (error["code"], error["retry"]) == ("not-cancelled", True)


def test_cancel_at_a_coordinator_of_an_earlier_version_has_one_result() -> None:
    """Its response has no `nodes`, which was a KeyError."""
    with node_with((200, {"cancelled": True, "members": ["n1", "n2"]})) as (at, _):
        result = init("n2", "--cancel", "--at", at)
    assert (result.exit_code, result.stdout) == (0, "n1: cancelled\nn2: cancelled\n")


def test_init_shows_what_it_waits_for_and_keeps_the_reason_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last request without an answer hid the reason of those before, and could take as long as all of them."""
    monkeypatch.setattr("palisade.cli.waiting.NOTICE_S", 0.3)
    with node_with((503, LATER), (503, LATER), (503, HANGS)) as (at, sent):
        began = time.monotonic()
        result = init("--at", at, "--timeout", "1")
        assert time.monotonic() - began < 10
    assert (result.exit_code, sent) == (3, [503, 503, 503])
    first, last = result.stderr.splitlines()
    assert first.startswith(f"palisade: waiting: {LATER['detail']}")
    assert last == f"palisade: {LATER['detail']}"


def test_init_without_a_node_fails_at_once() -> None:
    result = init("--at", "127.0.0.1:9")
    assert result.exit_code == 3
    assert "connection refused; start the node" in result.stderr


@pytest.mark.parametrize("endpoints", ["127.0.0.1:7601", "a:1,b:1"])
def test_init_does_not_take_a_stream_address_for_http(endpoints: str) -> None:
    result = init(PALISADE_ENDPOINTS=endpoints)
    assert result.exit_code == 2
    assert "give --at: PALISADE_ENDPOINTS has stream addresses" in result.stderr


def test_init_without_a_join_token_names_the_variable_for_it() -> None:
    """It has no --user, which the node proposed (issue 16)."""
    with node_with((401, {"code": "no-credentials", "detail": "no credentials: send a token"})) as (at, _):
        refused = init("--at", at)
    assert refused.exit_code == 1
    assert refused.stderr.endswith("send a token. Set PALISADE_JOIN_TOKEN to the join token of the nodes\n")


def test_init_at_a_node_that_accepts_connections_and_does_not_answer_shows_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a running cluster, it printed "n1 are not a cluster yet" and "no node answers" (issue 16)."""
    monkeypatch.setattr("palisade.cli.waiting.NOTICE_S", 0.2)
    with node_with((503, HANGS)) as (at, _):
        result = init("--at", at, "--timeout", "0.6")
    assert result.exit_code == 3
    first, last = result.stderr.splitlines()
    assert first.startswith(f"palisade: waiting: no answer yet from {at} to the request to create a cluster of n1")
    assert last == (
        f"palisade: {at} accepts connections, but has not answered within 0.6 s; the node there may be frozen or busy: "
        "retry, or give another --at"
    )


def test_init_with_a_join_token_does_not_sign_in_as_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node can verify a user without a leader: it waited 20 s and did not name the existing cluster (issue 16)."""
    given = []

    def requests(headers: dict[str, str], **options: Any) -> HttpRequests:
        given.append(headers)
        return HttpRequests(headers, **options)

    monkeypatch.setattr("palisade.cli.init.HttpRequests", requests)
    user = {"PALISADE_USER": "root", "PALISADE_PASSWORD": "secret"}
    with node_with((200, DONE)) as (at, _):
        assert init("--at", at, PALISADE_JOIN_TOKEN="join", **user).exit_code == 0
        assert init("--at", at, **user).exit_code == 0
    assert given == [header_of(node_proof("join")), header_of(Password("root", "secret"))]
