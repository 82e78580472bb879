"""Options of `palisade journal serve` (docs/activation.md)."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from palisade.cli.journal import read_advertised
from palisade.cli.main import main

SERVE = "journal", "serve", "--role=orders", "--name=a", "--dir=a", "--primary"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--listen=0.0.0.0:7901"], "--listen: 0.0.0.0:7901"),
        (["--listen=[::]:7901"], r"--listen: [::]:7901"),
        (["--listen=127.0.0.1:7901", "--advertise=0.0.0.0:7901"], "--advertise: 0.0.0.0:7901"),
    ],
)
def test_copy_that_the_other_one_cannot_reach_is_refused(options: list[str], named: str) -> None:
    """Before, it announced 0.0.0.0, and the replica dialled itself."""
    refused = CliRunner().invoke(main, [*SERVE, *options])
    assert refused.exit_code == 2
    assert f"{named} is not reachable by the other copy; give --advertise" in refused.stderr


def test_address_that_is_announced_is_advertise_or_listen() -> None:
    assert read_advertised("0.0.0.0:7901", "journal-a.example:17901") == "journal-a.example:17901"
    assert read_advertised("192.0.2.7:7901", None) == "192.0.2.7:7901"


def test_append_without_entries_reports_that_there_was_nothing_to_append() -> None:
    """It printed "0 entries  0 to 0". No copy is asked."""
    done = CliRunner().invoke(main, ["journal", "append", "--role=orders", "--copies=127.0.0.1:9"], input="")
    assert (done.exit_code, done.stdout) == (0, "nothing to append: no ENTRIES and no lines on stdin\n")
