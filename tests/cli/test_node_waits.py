"""If the leader waits for a silent node, the notice of a waiting command names that node (issue 16)."""

from __future__ import annotations

import asyncio
import importlib
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.cli.node_waits import NodeWaits, text_of
from palisade.service.catalog import Catalog
from palisade.service.key_values import KeyValues
from tests.support.cli_node import cli_node

waiting_module: Any = importlib.import_module("palisade.cli.waiting")
LEASE = {"state": "active", "serves": True, "why_not": None, "incarnation": 1, "term": 1, "lease_age_ms": 1,
         "released": 1, "applied": 1}  # fmt: skip


def waiting_for(**until_ms: int | None) -> dict[str, Any]:
    """A view of fencing at a leader that waits for these nodes."""
    waits_for = [
        {"node": node, "reason": f"{node} does not support leases: upgrade it", "until_ms": left}
        for node, left in until_ms.items()
    ]
    wait = {"first": 3, "last": 4, "waited_ms": 5, "verdict": "wait", "until_ms": 9, "waits_for": waits_for}
    return {"node": "n1", "lease": LEASE, "leader": {"waits": [wait]}}


@pytest.mark.parametrize(
    "command", ["put /k v", "lock /l -- true", "catalog create-database plant", "user add u --password-file -"]
)
def test_notice_names_the_node_that_the_leader_waits_for(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "no answer yet from" the leader, which itself waited for the lease of a frozen node."""

    async def slow(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(1.0)

    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.2)
    monkeypatch.setattr(KeyValues, "submit", lambda *_, **__: None)
    monkeypatch.setattr(KeyValues, "submit_frame", lambda *_, **__: 0)
    monkeypatch.setattr(Catalog, "do", slow)
    before, _, after = command.partition(" -- ")
    with cli_node(fencing_view=lambda: waiting_for(n3=900)) as node:
        where = ["--timeout", "0.8", "--endpoints", node.endpoint, *(["--", after] if after else [])]
        done = CliRunner().invoke(main, [*before.split(), *where], input="a long password\n")
    reason = "n1 waits for n3, until it acknowledges a change or its lease ends"
    assert f"palisade: waiting: {reason}\n" in done.stderr


def test_reason_of_a_node_without_leases_names_the_remedy() -> None:
    def text(**until_ms: int | None) -> str | None:
        view = waiting_for(**until_ms)
        return text_of({"member": "n1", "fencing": {"waits": view["leader"]["waits"]}})

    both = "n1 waits for n2 and n3, until they acknowledge a change or their leases end"
    assert text(n2=1, n3=2) == both
    assert text(**{"(before generation 2)": 9, "n2": 1, "n3": 2}) == (
        "n1 waits for n2 and n3, until they acknowledge a change or their leases end; for leases from before "
        "generation 2, until they expire"
    )
    assert text(**{"(before generation 2)": 9}) == "n1 waits for leases from before generation 2, until they expire"
    three = "n1 waits for n2, n3 and n4, until they acknowledge a change or their leases end"
    assert text(n4=3, n2=1, n3=2) == three
    assert text(n1=1, n2=1, n3=2) == both, "the leader does not wait for itself"
    assert text(n1=1) == "n1 waits for n1, until it acknowledges a change or its lease ends"
    assert text(n2=None) == "n1 waits because n2 does not support leases: upgrade it"
    assert text(n2=1, n3=None) == (
        "n1 waits for n2, until it acknowledges a change or its lease ends; because n3 does not support leases: "
        "upgrade it"
    )
    assert text_of({"member": "n1", "fencing": {"waits": []}}) is None
    assert text_of({"member": "n1", "fencing": {"waits": None}}) is None
    assert text_of({"member": "n1", "fencing": None}) is None


@pytest.mark.parametrize(
    ("writer", "trouble", "waits", "shown"),
    [
        ("", None, None, "n1 has not finished the request"),
        ("", None, "n1 waits for n2", "n1 waits for n2"),
        ("no answer yet from n3", None, None, "no answer yet from n3"),
        ("no answer yet from n3", None, "n1 waits for n2", "no answer yet from n3; n1 waits for n2"),
        ("no answer yet from n3", "n3 knows no leader", "n1 waits for n2", "no answer yet from n3; n3 knows no leader"),
        ("n3: n3 knows no leader", "n3 knows no leader", None, "n3: n3 knows no leader"),
    ],
)
def test_data_node_of_a_writer_is_named_with_the_reason_of_the_cluster(
    writer: str, trouble: str | None, waits: str | None, shown: str
) -> None:
    """`realtime append` named only the healthy node that waited for the lease of the frozen one."""
    client: Any = SimpleNamespace(writer_waits_for=writer, trouble=trouble, connected_to="n1", receiving_bytes=0)
    node_waits = NodeWaits()
    node_waits.text = waits
    assert node_waits.reason(client) == shown


def test_reason_of_a_data_node_is_not_repeated_as_the_reason_of_the_cluster() -> None:
    """The line of `segments realtime append` had "n1 knows no leader" twice."""
    client: Any = SimpleNamespace(
        writer_waits_for="n1: n1 knows no leader. Retry", trouble="n1 knows no leader; n2: late"
    )
    assert NodeWaits().known(client) == "n1: n1 knows no leader. Retry; n2: late"
    client.trouble = None
    assert NodeWaits().known(client) == client.writer_waits_for
