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

from palisade.cli.bench_run import STOPPED_S
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


def test_bench_without_any_success_ends_after_the_first_requests(run: Run, node: CliNode) -> None:
    """Each client waited for all of its requests in turn: 37 s for 500 requests, with a timeout of 5 s."""
    node.do(lambda: vars(node.group).update(majority=False))
    result = run("bench", "put", "--total", "4000", "--clients", "4", "--timeout", "1.5", "--json")
    node.do(lambda: vars(node.group).update(majority=True))
    assert result.exit_code == 3
    assert json.loads(result.output)["failures"] == {"outcome-unknown": 4}


def test_bench_without_any_success_has_a_reason(run: Run, node: CliNode) -> None:
    """It printed "failed: unavailable 64" alone (issue 16)."""
    node.do(lambda: vars(node.group).update(majority=False))
    result = run("bench", "put", "--total", "4", "--clients", "4", "--timeout", "1.5")
    node.do(lambda: vars(node.group).update(majority=True))
    assert result.exit_code == 3
    assert "palisade bench: no request succeeded: " in result.stderr
    assert "deadline" in result.stderr


def test_object_of_bench_without_any_success_has_a_reason(run: Run, node: CliNode) -> None:
    node.do(lambda: vars(node.group).update(majority=False))
    result = run("bench", "put", "--total", "4", "--clients", "4", "--timeout", "1.5", "--json")
    node.do(lambda: vars(node.group).update(majority=True))
    assert result.exit_code == 3
    assert "deadline" in json.loads(result.stdout)["reason"]
    assert json.loads(run("bench", "put", "--total", "4", "--json").stdout)["reason"] is None


def test_bench_without_keys_that_remain_has_none_in_its_object(run: Run) -> None:
    assert json.loads(run("bench", "put", "--total", "4", "--json").output)["keys_left"] is None


def cannot_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete(*_: Any, **__: Any) -> None:
        raise Unavailable("no leader\nyet")

    monkeypatch.setattr(Client, "delete", delete)


def ends_after_a_put(monkeypatch: pytest.MonkeyPatch, ends: signal.Signals | Exception) -> None:
    """The second put gets the signal and no response, or is refused."""
    put, puts = Client.put, list[bytes]()

    async def ended(self: Client, key: bytes, *rest: Any, **more: Any) -> Any:
        puts.append(key)
        if len(puts) == 1:
            return await put(self, key, *rest, **more)
        if isinstance(ends, Exception):
            raise ends
        signal.raise_signal(ends)
        return await asyncio.sleep(10)

    monkeypatch.setattr(Client, "put", ended)


@pytest.mark.parametrize("as_json", [True, False])
def test_bench_that_is_refused_names_keys_that_remain_in_its_one_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """A plain line stood beside the error."""
    ends_after_a_put(monkeypatch, QuotaExceeded("full"))
    cannot_delete(monkeypatch)
    result = run("bench", "put", "--total", "5", "--clients", "1", *(["--json"] if as_json else []))
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    if as_json:
        error = json.loads(line)["error"]
        assert (error["code"], error["keys_left"]["reason"]) == ("quota-exceeded", "no leader yet")
        assert error["keys_left"]["prefix"].startswith("/palisade-bench/")
    else:
        assert line.startswith("palisade: full; its keys could not be deleted (no leader yet); delete them with: ")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("deletes", [True, False])
def test_bench_that_is_stopped_prints_one_object_with_what_it_has_measured(
    run: Run, node: CliNode, monkeypatch: pytest.MonkeyPatch, stop: signal.Signals, deletes: bool
) -> None:
    """It printed nothing; if its keys remained, an error without the figures."""
    keys = node.group.store.key_count
    ends_after_a_put(monkeypatch, stop)
    if not deletes:
        cannot_delete(monkeypatch)
    result = run("bench", "put", "--total", "5", "--clients", "1", "--json")
    assert (result.exit_code, result.stderr) == (128 + stop, "")
    found = json.loads(result.stdout)
    assert (found["done"], found["total"], found["interrupted"]) == (1, 5, True)
    assert found["latency_ms"]["max"] > 0
    assert (found["keys_left"] is None) == deletes
    assert node.group.store.key_count == keys + (not deletes)


def test_bench_that_is_stopped_while_it_connects_prints_its_object(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def status(_: Client) -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(10)

    monkeypatch.setattr(Client, "status", status)
    result = run("bench", "put", "--total", "5", "--json")
    assert (result.exit_code, result.stderr) == (130, "")
    found = json.loads(result.stdout)
    assert (found["done"], found["per_s"], found["interrupted"], found["keys_left"]) == (0, 0, True, None)
    without = run("bench", "put", "--total", "5")
    assert (without.exit_code, without.output) == (130, "")


def test_bench_that_is_stopped_twice_names_the_keys_that_remain(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_after_a_put(monkeypatch, signal.SIGINT)

    async def delete(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(10)

    monkeypatch.setattr(Client, "delete", delete)
    result = run("bench", "put", "--total", "5", "--clients", "1", "--json")
    assert result.exit_code == 130
    assert json.loads(result.stdout)["keys_left"]["reason"] == "interrupted"


def test_bench_that_is_stopped_prints_its_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_after_a_put(monkeypatch, signal.SIGINT)
    result = run("bench", "put", "--total", "5", "--clients", "1")
    assert (result.exit_code, result.stderr) == (130, "")
    assert "requests\t1" in result.stdout


@pytest.mark.parametrize("what", ["put", "stream", "get"])
def test_bench_without_rights_has_one_error_and_no_word_on_keys(what: str) -> None:
    """It reported also that its keys could not be deleted, and it had written none."""
    with cli_node(guarded=True) as guarded:
        environ = {"PALISADE_ENDPOINTS": guarded.endpoint, "PALISADE_USER": "bob", "PALISADE_PASSWORD": "bobs password"}
        result = CliRunner().invoke(main, ["bench", what, "--total", "50", "--clients", "8"], env=environ)
        as_json = CliRunner().invoke(main, ["bench", what, "--total", "50", "--clients", "8", "--json"], env=environ)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("palisade: ")
    assert "delete" not in line
    assert "palisade-bench" in line
    error = json.loads(as_json.stderr)["error"]
    assert (as_json.exit_code, error["code"], "keys_left" in error) == (1, "permission-denied", False)


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
    monkeypatch.setattr("palisade.cli.bench_run.FUTILE_PART", 1_000)
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
    first, reason, keys = result.stderr.splitlines()[-3:]
    assert first == "erased"
    assert reason.startswith("palisade bench: no request succeeded: ")
    assert keys.startswith("palisade bench: its keys could not be deleted")


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


def test_bench_that_is_stopped_deletes_its_keys_within_a_short_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With frozen nodes it took the whole --timeout after Ctrl-C."""
    ends_after_a_put(monkeypatch, signal.SIGINT)
    limits = []

    async def delete(*_: Any, timeout_s: float, **__: Any) -> None:
        limits.append(timeout_s)

    monkeypatch.setattr(Client, "delete", delete)
    assert run("bench", "put", "--total", "5", "--clients", "1", "--timeout", "60").exit_code == 130
    assert limits == [STOPPED_S]


@pytest.mark.parametrize("what", ["put", "stream"])
def test_bench_whose_requests_all_fail_is_unavailable(what: str) -> None:
    with cli_node() as node:
        node.do(lambda: vars(node.group).update(leading=False))
        where = ["--timeout", "0.3", "--endpoints", node.endpoint]
        done = CliRunner().invoke(main, ["bench", what, "--total", "4", "--clients", "4", *where])
        node.do(lambda: vars(node.group).update(leading=True, majority=False))
        unknown = CliRunner().invoke(main, ["bench", what, "--total", "4", "--clients", "4", *where])
    assert (done.exit_code, unknown.exit_code) == (3, 3), done.output + unknown.output
