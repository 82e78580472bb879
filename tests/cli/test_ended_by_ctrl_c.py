"""What commands that run until Ctrl-C print when it ends them (issue 16)."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
watch_module: Any = importlib.import_module("palisade.cli.watch")
lease_module: Any = importlib.import_module("palisade.cli.lease")


@pytest.fixture
def first_revision(run: Run, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of two changes of /w. Ctrl-C comes when the second one is shown."""
    first: int = json.loads(run("put", "/w", "1", "--json").stdout)["revision"]
    run("put", "/w", "2")
    show = watch_module.show

    def shown(session: Any, events: Any) -> None:
        if events.revision > first:
            raise KeyboardInterrupt
        show(session, events)

    monkeypatch.setattr(watch_module, "show", shown)
    return first


def test_watch_names_the_revision_from_which_it_continues(run: Run, first_revision: int) -> None:
    result = run("watch", "/w", "--start-revision", str(first_revision))
    assert (result.exit_code, result.stdout) == (130, f"{first_revision}\tput\t/w\t1\n")
    assert result.stderr == (
        f"palisade: watched up to revision {first_revision}; --start-revision {first_revision + 1} continues\n"
    )


def test_watch_with_json_prints_no_remark(run: Run, first_revision: int) -> None:
    result = run("watch", "/w", "--start-revision", str(first_revision), "--json")
    assert (result.exit_code, result.stderr) == (130, "")


def test_watch_without_a_change_says_so(run: Run, first_revision: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_module, "show", interrupted)
    result = run("watch", "/w", "--start-revision", str(first_revision))
    assert (result.exit_code, result.stderr) == (130, "palisade: no change was received\n")


def test_keep_alive_names_the_time_at_which_the_lease_expires(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = run("lease", "grant", "30").stdout.strip()
    sleep = asyncio.sleep

    async def interrupted(seconds: float) -> None:
        if seconds == 10:
            raise KeyboardInterrupt
        await sleep(seconds)

    monkeypatch.setattr(lease_module.asyncio, "sleep", interrupted)
    result = run("lease", "keep-alive", lease)
    assert (result.exit_code, result.stdout) == (130, f"lease {lease}: 30 s\n")
    assert f"palisade: lease {lease} is no longer renewed; it expires within 30 s\n" in result.stderr


def test_listener_of_an_election_says_that_it_has_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_module: Any = importlib.import_module("palisade.cli.lock")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lock_module, "show", interrupted)
    result = run("elect", "/leader/a", "--listen")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "palisade: no longer listening; the same command begins with the present leader\n"
