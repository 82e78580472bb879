"""What `palisade up` has to say: one value per event, for people and for programs.

With --json each is a line: {"event": "node-ready", "node": "n1", ...}. The names and fields are stable:

    formatted      data_dir, cluster, nodes, base_port     a new cluster
    opened         data_dir, cluster, nodes, base_port     the one that is there
    node-started   node, pid, log
    node-ready     node, http, peer, stream
    node-exited    node, reason, log_lines, restart_in_s (null: it stays down)
    waiting        nodes                                    not ready after a while
    ready          urls, endpoints
    demo           done, total                              entries of the demo catalog
    demo-loaded    entries, written
    demo-failed    reason
    status         nodes (as `palisade status --json`)
    stopping       signal
    killed         node                                     it did not stop within its time
    stopped
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SupervisorEvent:
    """`text` is for people, `fields` for programs."""

    name: str
    text: str
    fields: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"event": self.name, **self.fields}
