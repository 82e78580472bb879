"""After a snapshot a follower continues from the log, without another snapshot (M11; scenarios.md, "Raft group")."""

from __future__ import annotations

from palisade.raftgroup.log_retention import ARRIVED_S, Arrivals, LogRetention, compaction_target


def test_log_is_kept_until_the_follower_has_what_existed_at_its_snapshot() -> None:
    arrivals, held = Arrivals(), {"n2": 100}
    arrivals.note("n2", 250, now=0.0)
    assert arrivals.needed(held.get, 0.1) == 100
    held["n2"] = 180
    assert arrivals.needed(held.get, 0.2) == 180
    held["n2"] = 250
    assert arrivals.needed(held.get, 0.3) is None
    held["n2"] = 10
    assert arrivals.needed(held.get, 0.4) is None


def test_log_is_kept_for_a_bounded_time_and_not_for_removed_members() -> None:
    arrivals = Arrivals()
    arrivals.note("n2", 250, now=0.0)
    arrivals.note("n3", 250, now=5.0)
    held = {"n2": 100, "n3": 120}
    assert arrivals.needed(held.get, ARRIVED_S - 0.1) == 100
    assert arrivals.needed(held.get, ARRIVED_S) == 120
    assert arrivals.needed({}.get, ARRIVED_S + 1) is None


def test_arrivals_limit_the_compaction() -> None:
    retention = LogRetention(20)
    assert compaction_target(retention, first=50, last=300, durable=290, needed=None) == 280
    assert compaction_target(retention, first=50, last=300, durable=290, needed=100) == 100
