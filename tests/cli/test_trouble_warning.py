"""palisade watch reports when no events can arrive, so that silence means that nothing has changed."""

from __future__ import annotations

import asyncio

import pytest

from palisade.cli import trouble_warning


class FakeWatch:
    trouble: str | None = None


async def test_watch_writes_few_lines_about_a_cluster_that_is_down_for_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 16: 785 near-equal lines in 17 minutes, one for each address that was tried."""
    monkeypatch.setattr(trouble_warning, "POLL_S", 0.0)
    watch = FakeWatch()
    warning = asyncio.ensure_future(trouble_warning.warn_of_trouble(watch))
    for number in range(300):
        watch.trouble = f"no connection to a node (127.0.0.1:{7600 + number % 3}: refused)"
        await asyncio.sleep(0)
    warning.cancel()
    assert len(capsys.readouterr().err.splitlines()) == 1


async def test_watch_reports_once_that_no_events_can_arrive_and_once_that_they_can(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trouble_warning, "POLL_S", 0.0)
    watch = FakeWatch()
    warning = asyncio.ensure_future(trouble_warning.warn_of_trouble(watch))
    for trouble in (None, "n1 knows no leader", None):
        watch.trouble = trouble
        for _ in range(5):
            await asyncio.sleep(0)
    warning.cancel()
    assert capsys.readouterr().err.splitlines() == [
        "palisade watch: no change can arrive: n1 knows no leader",
        "palisade watch: changes arrive again; none was missed (after 0.0 s)",
    ]
