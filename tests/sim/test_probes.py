"""Without faults each path is used at each node, and nodes that do not respond are named (issue 5, liveness)."""

from __future__ import annotations

from tests.sim.faults import SCENARIOS
from tests.sim.plants import planted
from tests.sim.run import WHOLE, Run, run_seed
from tests.sim.seen import PROBER, Ok, Path, WatchAsked, WatchDelivered
from tests.sim.world import Settings

AT_MEMBERS = {Path.LOCAL, Path.HTTP, Path.FENCED_API, Path.VAULT_READER}


def test_each_path_is_answered_at_each_node() -> None:
    run = Run(3, SCENARIOS["calm"], None, Settings(http=True))
    outcome = run.run()
    assert not outcome.violation, outcome.violation
    history = run.world.history
    gone: dict[str, set[Path]] = {}
    for operation in history.operations():
        if operation.client == PROBER and isinstance(operation.outcome, Ok):
            gone.setdefault(operation.node, set()).add(operation.path)
    assert gone.pop("stream") == {Path.STREAM}
    assert gone.pop("f1") == {Path.FENCED_API, Path.VAULT_READER}
    assert {node: paths - {Path.LEADER, Path.MEMBER} for node, paths in gone.items()} == dict.fromkeys(
        ("n1", "n2", "n3"), AT_MEMBERS
    )
    assert all(paths & {Path.LEADER, Path.MEMBER} for paths in gone.values())


def test_each_member_sends_later_changes_to_a_watch() -> None:
    run = Run(3, SCENARIOS["calm"], None, Settings())
    assert not run.run().violation
    recorded = []
    for events in run.world.history.watches().values():
        asked = events[0]
        if isinstance(asked, WatchAsked) and asked.client == PROBER:
            recorded.append((asked.node, any(isinstance(each, WatchDelivered) for each in events)))
    assert sorted(recorded) == [("n1", True), ("n2", True), ("n3", True), *[("stream", True)] * 3]


def test_path_counts_as_gone_only_where_clients_were_answered() -> None:
    """Probes do not count: they run without faults."""
    way = "way of a request: vault-reader"
    assert run_seed(3, "calm", settings=Settings()).coverage[way]
    silent = run_seed(3, "calm", settings=Settings(), plant="readers-that-are-fenced-for-ever", until=WHOLE)
    assert way not in silent.coverage
    assert silent.coverage["refusal: fenced"]


def test_client_that_does_not_end_is_named() -> None:
    with planted("stream-clients-that-never-close"):
        outcome = run_seed(3, "calm", settings=Settings())
    assert outcome.violation.endswith("clients have not come to an end: streamer, prober")
