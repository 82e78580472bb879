"""palisade alarm: whether the store is full, and the end of it (M8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import Result

from palisade.metastore.limits import Limits
from tests.support.cli_node import CliNode, cli_node

QUOTA_BYTES = 10_000
Run = Callable[..., Result]


@pytest.fixture
def node() -> Iterator[CliNode]:
    with cli_node(limits=Limits(quota_bytes=QUOTA_BYTES)) as node:
        yield node


def test_alarm_list_without_an_alarm_prints_the_used_bytes(run: Run) -> None:
    assert run("alarm", "list").stdout.startswith("no alarm: ")
    found = json.loads(run("alarm", "list", "--json").stdout)
    assert (found["alarms"], found["quota_bytes"]) == ([], QUOTA_BYTES)
    assert json.loads(run("alarm", "disarm", "--json").stdout)["cleared"] is False


def test_alarm_list_without_a_leader_names_whose_view_it_is(run: Run, node: CliNode) -> None:
    """Only `fencing`, `topology` and `member list` had the note."""
    text = "no leader is known: this is the view of the node that answered"
    assert text not in run("alarm", "list").stderr
    node.do(lambda: node.group.led_by(None))
    shown = run("alarm", "list")
    assert (shown.exit_code, shown.stderr.count(text)) == (0, 1)
    assert text not in run("alarm", "list", "--json").stderr


def test_alarm_has_its_remedy_and_is_cleared_once_there_is_space(run: Run, node: CliNode) -> None:
    for number in range(8):
        run("put", f"/k{number}", "v" * 1999)
    listed = run("alarm", "list").stdout
    assert listed.splitlines()[1].startswith("quota\t")
    assert "Delete keys, compact, then clear the alarm" in listed
    refused = run("alarm", "disarm", "--json")
    assert (refused.exit_code, json.loads(refused.stderr)["error"]["code"]) == (1, "quota-exceeded")
    revision = json.loads(run("del", "/k", "--prefix", "--json").stdout)["revision"]
    run("compact", str(revision))
    node.do(lambda: [node.group.store.collect() for _ in range(100) if node.group.store.collecting])
    assert run("alarm", "disarm").stdout == "cleared the quota alarm: writes are accepted again\n"
    assert run("put", "/k", "v").exit_code == 0
