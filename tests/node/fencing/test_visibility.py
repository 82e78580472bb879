"""The fencing state of a node in `/v1/fencing`, in `palisade status`, and in its metrics (issue 4, "Visible"; F10).

Over the real wiring in simulated time: a cluster of three, one of which is paused while a strict write waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from palisade.api.fencing_status_line import short_view
from palisade.cli.fencing import holder_row
from palisade.metastore.requests import Put
from palisade.node.fencing.metric_families import fencing_families
from palisade.node.fencing.view import fencing_view
from palisade.service.status import cell, row_of, waits_of
from palisade.vault.regions import Mode, Policy, Region, pack_region, region_key
from tests.support.wired_parts import TIMING
from tests.support.wired_walk import Walk
from tests.support.wired_world import Node

PROCEED_MS = int(TIMING.proceed_s() * 1000)


class Shown:
    """Three nodes that serve; n1 leads, and `t/` is strict."""

    def __init__(self) -> None:
        walk = Walk(1, calm=True)
        walk.calm = False
        self.walk, self.cluster, self.simulation = walk, walk.cluster, walk.simulation
        self.client = self.simulation.process("client")
        self.simulation.run_until(lambda: all(node.holder.serves for node in self.nodes), within_s=20)
        region = Region("t", b"t/", Mode.STRICT, Policy.FAIL_CLOSED)
        self.write(Put(region_key("t"), pack_region(region)))

    @property
    def nodes(self) -> list[Node]:
        return list(self.cluster.nodes.values())

    def write(self, request: Put) -> None:
        self.simulation.run(self.client, self.walk._in_node("n1", request), within_s=10)

    def begin(self, request: Put) -> Any:
        return self.client.start(self.walk._in_node("n1", request))

    def view(self, name: str) -> dict[str, Any]:
        node = self.cluster.nodes[name]
        return fencing_view(node.part, node.process.now(), node.fencing)

    def row(self, name: str) -> dict[str, Any]:
        return row_of({"member": name, "role": "x", "fencing": short_view(self.view(name))}, None)

    def metrics(self, name: str) -> dict[str, float]:
        """Each sample by its name and its label, if it has one."""
        node = self.cluster.nodes[name]
        families = fencing_families(node.part, node.process.now(), node.fencing)
        return {
            " ".join([each.name, *each.labels.values()]): each.value for family in families for each in family.samples
        }


@pytest.fixture
def shown() -> Iterator[Shown]:
    made = Shown()
    yield made
    made.simulation.close()


def test_each_node_shows_its_state_lease_incarnation_term_and_revisions(shown: Shown) -> None:
    shown.write(Put(b"t/a", b"1"))
    shown.simulation.run_for(0.5)
    for number, name in enumerate(shown.cluster.names):
        shown.cluster.incarnations[name] += number
        node = shown.cluster.nodes[name]
        lease = shown.view(name)["lease"]
        assert (lease["state"], lease["serves"], lease["why_not"]) == ("active", True, None)
        assert (lease["incarnation"], lease["term"]) == (node.incarnation, shown.cluster.term)
        assert 0 <= lease["lease_age_ms"] <= TIMING.fence_s * 1000
        assert lease["lease_age_ms"] + lease["lease_left_ms"] == pytest.approx(TIMING.fence_s * 1000, abs=2)
        assert lease["applied"] == node.vault.revision
        assert lease["released"] == node.holder.core.released > 1
        row = shown.row(name)
        assert cell(row, "fence") == "active"
        assert cell(row, "incarnation") == str(node.incarnation)
        assert cell(row, "lease") == f"{lease['lease_age_ms'] / 1000:.1f} s"
        assert (cell(row, "released"), cell(row, "vault")) == (str(lease["released"]), str(lease["applied"]))
    holders = {each["node"]: each for each in shown.view("n1")["leader"]["holders"]}
    assert holders.keys() == set(shown.cluster.names)
    assert {each["said"] for each in holders.values()} == {"active"}
    assert [shown.view(name)["leader"] for name in ("n2", "n3")] == [None, None]


def test_pending_change_names_the_nodes_and_the_time_left(shown: Shown) -> None:
    shown.cluster.nodes["n3"].process.pause()
    shown.begin(Put(b"t/a", b"1"))
    shown.simulation.run_for(0.1)
    (wait,) = shown.view("n1")["leader"]["waits"]
    revision = shown.cluster.nodes["n1"].store.revision
    assert (wait["first"], wait["last"], wait["verdict"]) == (revision, revision, "wait")
    (for_whom,) = wait["waits_for"]
    assert for_whom["node"] == "n3"
    assert 0 < for_whom["until_ms"] == wait["until_ms"] <= PROCEED_MS
    assert 0 < wait["waited_ms"] <= 100
    (line,) = waits_of([shown.row(name) for name in shown.cluster.names])
    assert line.startswith(f"revisions {revision} to {revision} wait since {wait['waited_ms']} ms: n3 has not")
    assert f"may serve for another {for_whom['until_ms'] / 1000:.1f} s" in line
    assert shown.metrics("n1")["palisade_changes_waiting"] == 1
    shown.simulation.run_for(PROCEED_MS / 1000)
    assert shown.view("n1")["leader"]["waits"] == []
    assert waits_of([shown.row(name) for name in shown.cluster.names]) == []


def test_metrics_show_lease_age_fenced_time_and_waits(shown: Shown) -> None:
    before = shown.metrics("n1")
    shown.write(Put(b"t/a", b"1"))
    acked = shown.metrics("n1")
    count, total = "palisade_release_wait_seconds_count", "palisade_release_wait_seconds_sum"
    assert acked[f"{count} acked"] == before[f"{count} acked"] + 1
    assert acked[f"{total} acked"] - before[f"{total} acked"] < 0.1
    assert acked[f"{count} fenced"] == before[f"{count} fenced"]
    assert 0 <= acked["palisade_lease_age_seconds"] <= TIMING.fence_s
    assert (acked["palisade_fence_state active"], acked["palisade_fence_state fenced"]) == (1, 0)

    still = shown.cluster.nodes["n3"]
    still.process.pause()
    shown.write(Put(b"t/a", b"2"))
    fenced = shown.metrics("n1")
    assert fenced[f"{count} acked"] == acked[f"{count} acked"]
    assert fenced[f"{count} fenced"] == acked[f"{count} fenced"] + 1
    assert 0.2 < fenced[f"{total} fenced"] - acked[f"{total} fenced"] <= TIMING.proceed_s() + 0.01
    assert fenced["palisade_release_wait_seconds_bucket fenced +Inf"] == fenced[f"{count} fenced"]
    assert fenced["palisade_release_wait_seconds_bucket fenced 0.1"] == acked[f"{count} fenced"]

    shown.simulation.run_for(1.0)
    lapsed = shown.view("n3")["lease"]
    assert (lapsed["state"], lapsed["serves"], lapsed["lease_age_ms"]) == ("fenced", False, None)
    assert cell(shown.row("n3"), "lease") == "-"
    served_nothing = shown.metrics("n3")
    assert served_nothing["palisade_lease_age_seconds"] == -1
    assert (served_nothing["palisade_fence_state active"], served_nothing["palisade_fence_state fenced"]) == (0, 1)
    still.process.resume()
    shown.simulation.run_until(lambda: still.holder.serves, within_s=5)
    grown = shown.metrics("n3")["palisade_fenced_seconds_total"] - served_nothing["palisade_fenced_seconds_total"]
    assert grown > 0.5


def test_leader_view_of_a_holder_that_stopped(shown: Shown) -> None:
    node = shown.cluster.nodes["n3"]
    node.holder.stop()
    shown.simulation.run_for(0.2)
    of = {each["node"]: each for each in shown.view("n1")["leader"]["holders"]}
    assert (of["n3"]["promised"], of["n3"]["until_ms"]) == (True, 0)
    assert of["n3"]["said"] != "active"
    assert holder_row(of["n3"])[-1] == "promised not to serve"
    assert holder_row(of["n2"])[-2:] == ["active", "holds leases"]
