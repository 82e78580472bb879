"""palisade bench: counts its requests, deletes its keys, and reports failures (N3)."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from palisade.cli.bench_statistics import figures, quantile
from palisade.cli.main import main
from palisade.cli.session import CliSession
from palisade.client import Client, Unavailable
from palisade.metastore.errors import QuotaExceeded
from palisade.metastore.limits import Limits
from palisade.wire.auth_errors import Unauthenticated
from tests.support.cli_node import CliNode, cli_node

Run = Callable[..., Result]


def test_quantiles_are_measured_values() -> None:
    found = figures(2.0, [0.004, 0.001, 0.003, 0.002], {})
    assert (found.done, found.per_s) == (4, 2.0)
    assert found.latencies_ms() == {"mean": 2.5, "p50": 2.0, "p90": 4.0, "p99": 4.0, "p999": 4.0, "max": 4.0}
    assert [quantile([1, 2, 3], part) for part in (0.0, 0.33, 0.34, 0.99)] == [1, 1, 2, 3]
    assert figures(1.0, [], {"unavailable": 3}).latencies_ms() == {}


@pytest.mark.parametrize("what", ["put", "get", "stream"])
def test_bench_sends_the_requests_and_deletes_its_keys(run: Run, node: CliNode, what: str) -> None:
    before: dict[str, Any] = {"keys": node.group.store.key_count, "revision": node.group.store.revision}
    found = json.loads(
        run("bench", what, "--clients", "8", "--total", "300", "--keys", "20", "--value-size", "9", "--json").stdout
    )
    assert (found["bench"], found["done"], found["failures"], found["keys"]) == (what, 300, {}, 20)
    assert found["per_s"] > 0
    assert found["latency_ms"]["p50"] <= found["latency_ms"]["p99"] <= found["latency_ms"]["max"]
    assert node.group.store.key_count == before["keys"]
    assert node.group.store.revision == before["revision"] + (20 if what == "get" else 300) + 1


def test_bench_prints_a_table(run: Run) -> None:
    lines = run("bench", "put", "--total", "50", "--clients", "2").stdout.splitlines()
    assert lines[:2] == ["bench put\tvalue", "requests\t50"]
    assert any(line.startswith("p99, ms\t") for line in lines)


def test_bench_counts_failures_and_names_keys_that_remain(run: Run, node: CliNode) -> None:
    """With --json in one object on stdout: a plain line stood beside it on stderr. The deadline is that of connecting,
    too, which is to succeed."""
    node.do(lambda: vars(node.group).update(majority=False))
    result = run("bench", "put", "--total", "4", "--clients", "4", "--deadline", "1.5", "--json")
    node.do(lambda: vars(node.group).update(majority=True))
    found = json.loads(result.output)
    assert result.exit_code == 3  # it was 0
    assert (found["done"], found["failures"], found["latency_ms"]) == (0, {"outcome-unknown": 4}, {})
    assert found["keys_left"]["prefix"].startswith("/palisade-bench/")
    assert "deadline passed" in found["keys_left"]["reason"]


def test_bench_without_keys_that_remain_has_none_in_its_object(run: Run) -> None:
    assert json.loads(run("bench", "put", "--total", "4", "--json").output)["keys_left"] is None


@pytest.mark.parametrize(
    ("ends", "code", "exit_code"),
    [(QuotaExceeded("full"), "quota-exceeded", 1), (KeyboardInterrupt(), "interrupted", 130)],
)
def test_bench_with_json_names_keys_that_remain_in_the_object_of_its_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, ends: BaseException, code: str, exit_code: int
) -> None:
    """An error has one object, which a plain line preceded; Ctrl-C had the line alone."""

    async def put(*_: Any) -> None:
        if isinstance(ends, KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(10)
        raise ends

    async def delete(*_: Any, **__: Any) -> None:
        raise Unavailable("no leader\nyet")

    monkeypatch.setattr(Client, "put", put)
    monkeypatch.setattr(Client, "delete", delete)
    result = run("bench", "put", "--total", "1", "--clients", "1", "--json")
    error = json.loads(result.output)["error"]
    assert (result.exit_code, result.stdout, error["code"]) == (exit_code, "", code)
    assert error["keys_left"]["prefix"].startswith("/palisade-bench/")
    assert error["keys_left"]["reason"] == "no leader yet"


def test_bench_that_is_terminated_deletes_its_keys(run: Run, node: CliNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16: `timeout 3 palisade bench put` left its keys, and nothing named them."""
    put, keys = Client.put, node.group.store.key_count

    async def stopped_after_the_first(self: Client, *rest: Any, **more: Any) -> Any:
        found = await put(self, *rest, **more)
        signal.raise_signal(signal.SIGTERM)
        return found

    monkeypatch.setattr(Client, "put", stopped_after_the_first)
    result = run("bench", "put", "--total", "5", "--clients", "1")
    assert (result.exit_code, node.group.store.key_count) == (128 + signal.SIGTERM, keys)


def test_bench_names_keys_whose_deletion_was_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that expired meanwhile: the figures were lost, and no keys were named."""

    async def delete(*_: Any, **__: Any) -> None:
        raise Unauthenticated("the token has expired")

    monkeypatch.setattr(Client, "delete", delete)
    result = run("bench", "put", "--total", "5", "--clients", "1")
    assert (result.exit_code, "requests\t5" in result.stdout) == (0, True)
    assert "its keys could not be deleted (the token has expired); delete them with: palisade del" in result.stderr


def test_bench_shows_its_progress_while_no_request_succeeds(
    run: Run, node: CliNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines at growing intervals left it silent for 9.7 s (issue 16)."""
    monkeypatch.setattr("palisade.cli.waiting.NOTICE_S", 0.05)
    monkeypatch.setattr("palisade.cli.waiting.LINES_S", 0.1)
    node.do(lambda: vars(node.group).update(majority=False))
    result = run("bench", "put", "--total", "8", "--clients", "4", "--timeout", "1.5")
    node.do(lambda: vars(node.group).update(majority=True))
    shown = [line for line in result.stderr.splitlines() if line.startswith("palisade: bench put: ")]
    assert shown[0].startswith("palisade: bench put: 0 of 8, 0/s")
    assert any(line.startswith("palisade: bench put: 0 of 8, 4 failed, ") and " s left" in line for line in shown)
    assert shown[-1].startswith("palisade: bench put: deleting its keys")


def test_bench_names_keys_that_remain_once_its_progress_is_erased(
    run: Run, node: CliNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, the message continued the line of the progress (issue 16)."""

    @asynccontextmanager
    async def shown(*_: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            click.echo("erased", err=True)

    monkeypatch.setattr(CliSession, "shown_progress", shown)
    node.do(lambda: vars(node.group).update(majority=False))
    result = run("bench", "put", "--total", "1", "--clients", "1", "--timeout", "0.5")
    node.do(lambda: vars(node.group).update(majority=True))
    first, second = result.stderr.splitlines()[-2:]
    assert first == "erased"
    assert second.startswith("palisade bench: its keys could not be deleted")


@pytest.mark.parametrize("what", ["put", "get"])
def test_bench_with_json_writes_no_progress_into_a_pipe(
    run: Run, node: CliNode, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """There, stderr is for one object."""
    monkeypatch.setattr("palisade.cli.waiting.NOTICE_S", 0.0)
    monkeypatch.setattr("palisade.cli.waiting.LINES_S", 0.0)
    result = run("bench", what, "--total", "200", "--clients", "1", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"palisade: bench {what}: " in run("bench", what, "--total", "200", "--clients", "1").stderr


def test_bench_ends_at_a_refusal_and_deletes_its_keys() -> None:
    with cli_node(limits=Limits(quota_bytes=200_000)) as small:
        arguments = ["bench", "stream", "--total", "5000", "--value-size", "1000", "--json"]
        result = CliRunner().invoke(main, [*arguments, "--endpoints", small.endpoint])
        assert (result.exit_code, json.loads(result.stderr)["error"]["code"]) == (1, "quota-exceeded")
        assert small.group.store.key_count == 0
