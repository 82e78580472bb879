"""What a removed member shows in the second until it ends (issue 16, item 1), in the simulator."""

from __future__ import annotations

from palisade.topology.join_state import JoinPhase
from tests.sim.scripted import scripted


def test_removed_member_shows_itself_as_removed_while_it_runs() -> None:
    """Its own join state, and its copy of the logical topology, are still those of an active voter."""
    with scripted() as script:
        removed = script.others[0]
        topology, part = removed.node.topology, removed.part
        assert topology.is_active
        assert topology.own_view()["phase"] == "active"
        script.process(script.leader).start(script.leader.group.remove(removed.id))
        script.run_until(lambda: part.was_removed, within_s=5)
        assert removed.runs
        assert topology.member.life.phase is JoinPhase.ACTIVE
        assert not topology.is_active
        view = topology.view()
        assert view["self"]["phase"] == "removed"
        assert {row["id"] for row in view["logical"]} == {host.id for host in script.world.members} - {removed.id}
        script.world.tolerated = lambda host, _: host is removed
        script.run_until(lambda: not removed.runs, within_s=5)
