"""Three nodes of Palisade as `palisade up` starts them, with the defaults of a node."""

from __future__ import annotations

import sys
from pathlib import Path

import node
from harness.process import Process
from harness.system import NODES, System, free_base_port
from node.supervisor.cluster import arguments
from node.supervisor.layout import PEER_OFFSET, STREAM_OFFSET, Layout
from node.version import VERSION

CODE_ROOT = Path(node.__file__).resolve().parents[1]


class Palisade(System):
    """`program` runs a node under something else, such as a profiler."""

    name = "palisade"
    version = VERSION

    def __init__(self, folder: Path, program: tuple[str, ...] = (sys.executable, "-P", "-m", "node.cli")) -> None:
        super().__init__(folder)
        numbers = range(1, NODES + 1)
        base = free_base_port([offset + number for offset in (0, PEER_OFFSET, STREAM_OFFSET) for number in numbers])
        layout = Layout("bench", NODES, base)
        members = layout.members()
        self.urls = [f"http://{member.http}" for member in members]
        self.streams = [str(member.stream) for member in members]
        for member in members:
            options = [*program, "node", *arguments(layout, member.id), "--data-dir", str(folder / member.id)]
            log = folder / f"{member.id}.log"
            self.processes.append(Process(member.id, options, log, {"PYTHONPATH": str(CODE_ROOT)}))

    async def is_ready(self, number: int) -> bool:
        return (await self.get(number, "/readyz"))[0] == 200
