"""`palisade del` of more keys than one portion, when it fails or is interrupted (issue 16)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from palisade.client import Client, Unavailable, bulk_deletes

Run = Callable[..., Result]


@pytest.fixture
def stopping(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Of eight keys, portions of three are deleted; the second portion raises the error."""
    monkeypatch.setattr(bulk_deletes, "PORTION", 3)
    for number in range(8):
        run("put", f"/k/{number}", "x")

    def stop(error: BaseException) -> None:
        delete, asked = Client.delete, 0

        async def failing(*arguments: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 2:
                raise error
            return await delete(*arguments, **options)

        monkeypatch.setattr(Client, "delete", failing)

    return stop


def test_del_reports_portions_deleted_before_an_error(run: Run, stopping: Callable[[BaseException], None]) -> None:
    stopping(Unavailable("no leader"))
    result = run("del", "/k/", "--prefix")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "3 of 8 keys are deleted: the same command deletes the rest" in result.stderr
    assert run("del", "/k/", "--prefix").stdout.startswith("deleted 5")


def test_del_reports_deleted_portions_in_the_object_of_the_error(
    run: Run, stopping: Callable[[BaseException], None]
) -> None:
    stopping(Unavailable("no leader"))
    error = json.loads(run("del", "/k/", "--prefix", "--json").stderr)["error"]
    assert (error["code"], error["retry"]) == ("unavailable", True)
    assert "3 of 8 keys are deleted" in error["message"]


def test_del_reports_portions_deleted_before_ctrl_c(run: Run, stopping: Callable[[BaseException], None]) -> None:
    stopping(KeyboardInterrupt())
    result = run("del", "/k/", "--prefix")
    assert result.exit_code == 130
    assert result.stderr == "palisade: at least 3 of 8 keys were deleted; the same command deletes the rest\n"
    assert run("del", "/k/", "--prefix").stdout.startswith("deleted 5")


def test_del_interrupted_during_its_first_portion_states_how_to_continue(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It printed only that the request may have been executed."""
    run("put", "/k/1", "x")

    async def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "delete", interrupted)
    for unsure, text in ((False, ""), (True, "palisade: some keys may have been deleted, or may still be deleted; ")):
        monkeypatch.setattr(Client, "has_uncertain_write", unsure)
        result = run("del", "/k/", "--prefix")
        assert result.exit_code == 130
        assert result.stderr == (f"{text}the same command deletes the rest\n" if text else "")
