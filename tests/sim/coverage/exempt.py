"""What there is in the product and no run of the simulator can come to, and why. One that is reached is wrong."""

from __future__ import annotations

STANDALONE = "a node without a cluster has nobody to be simulated with; tests/recovery goes through the whole table"
ONLY_RECOVERING = "nobody asks for it but while RECOVERING, when its listeners are done (node/fencing/holder.py)"
FORCED = "a command line on the disk of a node that is stopped, when a majority is lost for ever; tests/e2e"
OVERTAKEN = "takes writes faster than a replay for three rounds; tests/recovery (catchup, random schedules)"

EXEMPT: dict[str, str] = {
    "holder is not activated: already": ONLY_RECOVERING,
    "holder is not activated: stopped": ONLY_RECOVERING,
    "holder is not activated: recovery": ONLY_RECOVERING,
    "holder is not activated: listeners": ONLY_RECOVERING,
    "holder is offered a grant: never-asked": "no leader and no network makes up a t0; tests/fencing",
    "verdict on a revision: fail": "takes a holder that knows no leases, and all nodes here know them; tests/fencing",
    "membership: alone": FORCED,
    "command: begin-generation": FORCED,
    "command: evict-results": "a client is forgotten after an hour, and a run lasts minutes; tests/metastore",
    "command: disarm-alarm": "a quota that is used up refuses what all other checkers wait for; tests/metastore",
    "recovery decision: join standalone": STANDALONE,
    "recovery decision: refuse standalone-empty": STANDALONE,
    "recovery decision: refuse standalone-unfinished": STANDALONE,
    "recovery decision: snapshot stuck": OVERTAKEN,
    "recovery next: snapshot": OVERTAKEN,
    "recovery end: running": "a report is handed out when its recovery has ended",
}
