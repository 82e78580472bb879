"""The fencing state of a node in `/v1/fencing`, in `palisade status`, and in its metrics (issue 4, "Visible"; F10).

In the simulator: a cluster of three, one of which is paused while a strict write waits for it.
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
from tests.sim.node import Host
from tests.sim.scripted import Script, scripted


class Shown:
    """Three nodes that serve. `t/` is strict, and `still` does not lead."""

    def __init__(self, script: Script) -> None:
        self.script, self.hosts = script, script.world.members
        self.leader, (self.still, _) = script.leader, script.others
        script.make_strict("t")
        self.proceed_s = script.timing.proceed_s()

    def view(self, host: Host) -> dict[str, Any]:
        return fencing_view(host.part, self.script.process(host).now(), host.node.fencing)

    def row(self, host: Host) -> dict[str, Any]:
        return row_of({"member": host.id, "role": "x", "fencing": short_view(self.view(host))}, None)

    def metrics(self, host: Host) -> dict[str, float]:
        """Each sample by its name and its label, if it has one."""
        families = fencing_families(host.part, self.script.process(host).now(), host.node.fencing)
        return {
            " ".join([each.name, *each.labels.values()]): each.value for family in families for each in family.samples
        }


@pytest.fixture
def shown() -> Iterator[Shown]:
    with scripted() as script:
        yield Shown(script)


def test_each_node_shows_its_state_lease_incarnation_term_and_revisions(shown: Shown) -> None:
    script = shown.script
    shown.still.kill()
    shown.still.start()
    script.run_until(script.world.all_serve, within_s=10)
    script.write(Put(b"t/a", b"1"))
    script.run_for(0.5)
    incarnations = {}
    for host in shown.hosts:
        lease, fence_ms = shown.view(host)["lease"], script.timing.fence_s * 1000
        assert (lease["state"], lease["serves"], lease["why_not"]) == ("active", True, None)
        assert lease["incarnation"] == host.node.topology.member.incarnation()
        assert lease["term"] == shown.leader.group.term
        assert 0 <= lease["lease_age_ms"] <= fence_ms
        assert lease["lease_age_ms"] + lease["lease_left_ms"] == pytest.approx(fence_ms, abs=2)
        assert host.vault is not None
        assert lease["applied"] == host.vault.revision
        assert lease["released"] == host.part.holder.core.released > 1
        row = shown.row(host)
        assert cell(row, "fence") == "active"
        incarnations[host.id] = cell(row, "incarnation")
        assert cell(row, "lease") == f"{lease['lease_age_ms'] / 1000:.1f} s"
        assert (cell(row, "released"), cell(row, "vault")) == (str(lease["released"]), str(lease["applied"]))
    assert incarnations == {host.id: "2" if host is shown.still else "1" for host in shown.hosts}
    holders = {each["node"]: each for each in shown.view(shown.leader)["leader"]["holders"]}
    assert holders.keys() == set(incarnations)
    assert {(each["reported_state"], each["said"]) for each in holders.values()} == {("active", "active")}
    assert [shown.view(host)["leader"] for host in script.others] == [None, None]


def test_pending_change_names_the_nodes_and_the_time_left(shown: Shown) -> None:
    script, leader, still = shown.script, shown.leader, shown.still
    script.process(still).pause()
    script.begin(Put(b"t/a", b"1"))
    script.run_for(0.1)
    (wait,) = shown.view(leader)["leader"]["waits"]
    revision = leader.store.revision
    assert (wait["first"], wait["last"], wait["verdict"]) == (revision, revision, "wait")
    (for_whom,) = wait["waits_for"]
    assert for_whom["node"] == still.id
    assert 0 < for_whom["until_ms"] == wait["until_ms"] <= shown.proceed_s * 1000
    assert 0 < wait["waited_ms"] <= 100
    (line,) = waits_of([shown.row(host) for host in shown.hosts])
    assert line.startswith(f"revision {revision} has waited {wait['waited_ms']} ms: {still.id} has not")
    assert f"may serve for another {for_whom['until_ms'] / 1000:.1f} s" in line
    assert shown.metrics(leader)["palisade_changes_waiting"] == 1
    script.run_for(shown.proceed_s)
    assert shown.view(leader)["leader"]["waits"] == []
    assert waits_of([shown.row(host) for host in shown.hosts]) == []


def test_metrics_show_lease_age_fenced_time_and_waits(shown: Shown) -> None:
    script, leader, still = shown.script, shown.leader, shown.still
    before = shown.metrics(leader)
    script.write(Put(b"t/a", b"1"))
    acked = shown.metrics(leader)
    count, total = "palisade_release_wait_seconds_count", "palisade_release_wait_seconds_sum"
    assert acked[f"{count} acked"] == before[f"{count} acked"] + 1
    assert acked[f"{total} acked"] - before[f"{total} acked"] < 0.1
    assert acked[f"{count} fenced"] == before[f"{count} fenced"]
    assert 0 <= acked["palisade_lease_age_seconds"] <= script.timing.fence_s
    assert (acked["palisade_fence_state active"], acked["palisade_fence_state fenced"]) == (1, 0)

    script.process(still).pause()
    script.write(Put(b"t/a", b"2"))
    fenced = shown.metrics(leader)
    assert fenced[f"{count} acked"] == acked[f"{count} acked"]
    assert fenced[f"{count} fenced"] == acked[f"{count} fenced"] + 1
    assert 0.2 < fenced[f"{total} fenced"] - acked[f"{total} fenced"] <= shown.proceed_s + 0.01
    assert fenced["palisade_release_wait_seconds_bucket fenced +Inf"] == fenced[f"{count} fenced"]
    assert fenced["palisade_release_wait_seconds_bucket fenced 0.1"] == acked[f"{count} fenced"]

    script.run_for(1.0)
    lapsed = shown.view(still)["lease"]
    assert (lapsed["state"], lapsed["serves"], lapsed["lease_age_ms"]) == ("fenced", False, None)
    assert cell(shown.row(still), "lease") == "-"
    served_nothing = shown.metrics(still)
    assert served_nothing["palisade_lease_age_seconds"] == -1
    assert (served_nothing["palisade_fence_state active"], served_nothing["palisade_fence_state fenced"]) == (0, 1)
    script.process(still).resume()
    script.run_until(lambda: bool(still.part.holder.serves), within_s=5)
    grown = shown.metrics(still)["palisade_fenced_seconds_total"] - served_nothing["palisade_fenced_seconds_total"]
    assert grown > 0.5


def test_leader_view_of_a_holder_that_stopped(shown: Shown) -> None:
    shown.still.part.holder.stop()
    shown.script.run_for(0.2)
    of = {each["node"]: each for each in shown.view(shown.leader)["leader"]["holders"]}
    stopped, other = of[shown.still.id], of[shown.script.others[1].id]
    assert (stopped["promised"], stopped["until_ms"]) == (True, 0)
    assert stopped["said"] != "active"
    assert holder_row(stopped)[-1] == "promised not to serve"
    assert holder_row(other)[-2:] == ["active", "holds leases"]
