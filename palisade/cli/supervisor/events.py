"""The events of `palisade up`: text for users, JSON for programs.

With --json each event is one line: {"event": "node-ready", "node": "n1", ...}. The names and fields are stable:

    formatted      data_dir, cluster, nodes, base_port     a new cluster
    opened         data_dir, cluster, nodes, base_port     the existing cluster
    node-started   node, pid, log
    node-ready     node, http, peer, stream
    node-exited    node, reason, log_lines, restart_in_s (null: it stays down)
    waiting        nodes                                    not ready after a while
    ready          urls, endpoints
    no-user        remedy                                   authorization is on, and no user exists
    reading-demo   seconds                                  the input of the demo catalog is still being read
    demo           done, total                              entries of the demo catalog
    demo-loaded    entries, written
    demo-failed    reason
    status         nodes (as `palisade status --json`)
    stopping       signal
    killed         node                                     it did not stop in time
    stopped
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SupervisorEvent:
    """`text` is for users, `fields` for programs."""

    name: str
    text: str
    fields: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"event": self.name, **self.fields}
