"""Rows of the product that no run of the simulator can reach, and why. An exempt row that is reached is an error.

`SELDOM` are rows that a run can reach, but not one in hundreds: reported, and no failure either way.
"""

from __future__ import annotations

STANDALONE = "a node without a cluster has no peers to simulate; tests/recovery covers the whole table"
ONLY_RECOVERING = "it is requested only while RECOVERING, when its listeners are done (node/fencing/lease_client.py)"
OVERTAKEN = "takes writes faster than a replay for three rounds; tests/recovery (catchup, random schedules)"

SHOWN_ALONE = "only shown by a node that knows of its removal; its own phase stays (palisade/topology/topology.py)"
ANSWERS_ITSELF = "a node that does not lead answers Elsewhere first (node/fencing/lease_server.py)"

EXEMPT: dict[str, str] = {
    "holder is not activated: already": ONLY_RECOVERING,
    "holder is not activated: stopped": ONLY_RECOVERING,
    "holder is not activated: recovery": ONLY_RECOVERING,
    "holder is not activated: listeners": ONLY_RECOVERING,
    "holder is offered a grant: never-asked": "no leader and no network makes up a t0; tests/fencing",
    "leader is asked for a lease: not-leading": ANSWERS_ITSELF,
    "leader hears hello: not-leading": ANSWERS_ITSELF,
    "verdict on a revision: fail": "takes a holder that knows no leases, and all nodes here know them; tests/fencing",
    "command: evict-results": "a client is forgotten after an hour, and a run lasts minutes; tests/metastore",
    "command: disarm-alarm": "a quota that is used up refuses what all other checkers wait for; tests/metastore",
    "recovery decision: join standalone": STANDALONE,
    "recovery decision: refuse standalone-empty": STANDALONE,
    "recovery decision: refuse standalone-unfinished": STANDALONE,
    "recovery decision: snapshot stuck": OVERTAKEN,
    "recovery next: snapshot": OVERTAKEN,
    "recovery end: running": "a report is handed out when its recovery has ended",
    "life: removed": SHOWN_ALONE,
    "stopped while: removed": SHOWN_ALONE,
    "watch ends: other-history": "a watch within one history must not report a break; the watch contract checks it",
}

IN_FLIGHT = "under way while its reader begins anew, on a connection that keeps the order; tests/fencing explores it"
NO_LOG_AFTER_REMOVAL = "a removed member receives no more of the log: only a later start finds the removal"
HAS_IT = "its receiver has installed it, and was killed before it said so (the fault left-behind)"
TWO_LEADERS = "takes two leaders in turn over one transfer, and what the first has sent late; tests/raftgroup"

BEYOND = (
    "takes a slow clock at an isolated node and a fast one at the leader; tests/sim/test_beyond_the_bound.py plays it"
)

AFTER_EACH_OTHER = "takes several rare faults of one node after each other; the planted faults for it play them"

SELDOM: dict[str, str] = {
    "rare path: a snapshot with another membership": AFTER_EACH_OTHER,
    "rare path: dies in an eviction": AFTER_EACH_OTHER,
    "rare path: a snapshot during an eviction": AFTER_EACH_OTHER,
    "snapshot trouble: membership": "one in eight of a rare fault; tests/sim/test_nemesis.py plays it",
    "stopped while: rejected": "a rejected node stops by itself: only a signal in that moment reaches it",
    "beyond the bound: lease safety": BEYOND,
    "beyond the bound: fenced reads": BEYOND,
    "beyond the bound: linearizable": BEYOND,
    "holder is offered a grant: kept": IN_FLIGHT,
    "holder is offered a grant: stale-term": IN_FLIGHT,
    "holder is offered a grant: other-incarnation": IN_FLIGHT,
    "holder is offered a grant: stopped": IN_FLIGHT,
    "holder is sent a stage: staged-message": IN_FLIGHT,
    "holder is sent a stage: gap": IN_FLIGHT,
    "holder is sent a stage: had": IN_FLIGHT,
    "leader hears hello: old-incarnation": IN_FLIGHT,
    "swim change: left -> suspect": "a returning node is suspected, and the suspicion arrives before the first report",
    "swim change: left -> dead": "the same, of a life that is over by then",
    "append is answered: drop-reply": "a reply of an old term to a member that leads again; tests/raftgroup",
    "snapshot is sent: not-needed": HAS_IT,
    "snapshot is refused: not-ahead": HAS_IT,
    "snapshot is refused: old-term": TWO_LEADERS,
    "snapshot is refused: busy": TWO_LEADERS,
    "snapshot is refused: unknown": TWO_LEADERS,
    "count of rows: unavailable": "takes a node without its lease, and a broker with one, for all attempts of a count",
    "lookup of segments: unknown": "takes a lookup as of a revision before the first publication",
    "realtime step: store": "takes a copy that is damaged after its publication; tests/segments/test_realtime.py",
    "raft role change: follower -> learner": "a new leader lacks the promotion; raftgroup/test_group_membership.py",
    "raft role: removed": NO_LOG_AFTER_REMOVAL,
    "raft role change: learner -> removed": NO_LOG_AFTER_REMOVAL,
    "raft role change: follower -> removed": NO_LOG_AFTER_REMOVAL,
    "raft role change: removed -> learner": NO_LOG_AFTER_REMOVAL,
}
