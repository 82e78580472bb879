"""Three nodes of Palisade as `palisade up` starts them, with the defaults of a node; and nodes that follow them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.process import Process
from harness.system import NODES, System, free_base_port
from palisade.base.code_root import CODE_ROOT
from palisade.base.version import VERSION
from palisade.cli.supervisor.cluster import arguments
from palisade.node.local_layout import LOOPBACK, PEER_OFFSET, STREAM_OFFSET, SWIM_OFFSET, Layout


class Palisade(System):
    """`program` runs a node under something else, such as a profiler; `options` are given to each node."""

    name = "palisade"
    version = VERSION

    def __init__(
        self,
        folder: Path,
        program: tuple[str, ...] = (sys.executable, "-P", "-m", "palisade.cli"),
        options: tuple[str, ...] = (),
    ) -> None:
        super().__init__(folder)
        self._options = options
        numbers = range(1, NODES + 1)
        base = free_base_port([offset + number for offset in (0, PEER_OFFSET, STREAM_OFFSET) for number in numbers])
        self._layout = layout = Layout("bench", NODES, base)
        self._program = program
        members = layout.members()
        self.urls = [f"http://{member.http}" for member in members]
        self.streams = [str(member.stream) for member in members]
        for member in members:
            self._add(member.id, arguments(layout, member.id))

    def _add(self, name: str, options: Sequence[str]) -> None:
        given = [*self._program, "node", *options, *self._options, "--data-dir", str(self.folder / name)]
        self.processes.append(Process(name, given, self.folder / f"{name}.log", {"PYTHONPATH": str(CODE_ROOT)}))

    def add_follower(self) -> int:
        """A node beyond the voters, which is not started yet: its number."""
        number = len(self.processes)
        http, swim = (f"{LOOPBACK}:{self._layout.base_port + offset + number + 1}" for offset in (0, SWIM_OFFSET))
        seeds = ",".join(map(str, self._layout.swim().values()))
        name = f"f{number + 1}"
        options = ["--id", name, "--cluster", self._layout.cluster, "--follow"]
        self._add(name, [*options, "--http", http, "--swim", swim, "--seeds", seeds])
        self.urls.append(f"http://{http}")
        return number

    async def is_ready(self, number: int) -> bool:
        return (await self.get(number, "/readyz"))[0] == 200
