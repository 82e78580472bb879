"""The processes of a local cluster: started, watched, restarted after a growing pause, stopped.

Every start, every end with its reason and the last lines of the log, and every pause is an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

from palisade.cli.supervisor.child import Child
from palisade.cli.supervisor.events import SupervisorEvent
from palisade.cli.supervisor.restart_policy import Ending, backoff_s, describe_exit, failures_in_a_row, judge
from palisade.node.local_layout import Layout

STOP_S = 10.0
EMPTIED_POLL_S = 1.0
"""How often the data folder of a removed node is examined."""
Emit = Callable[[SupervisorEvent], None]


class LocalCluster:
    """`start`, then `stop`. `refused`, `removed`: the reason of each node that does not run, by its id.

    A node that was removed from the cluster is admitted again once its data folder is empty: it is started with --join.
    """

    def __init__(self, layout: Layout, folder: Path, emit: Emit, node_options: list[str]) -> None:
        self.layout = layout
        self.refused: dict[str, str] = {}
        self.removed: dict[str, str] = {}
        self.lost: set[str] = set()
        """Refused nodes whose data folder was lost or swapped."""
        self._emit = emit
        self._stopping = asyncio.Event()
        self._keepers: list[asyncio.Task[None]] = []
        self._node_options = node_options
        self.children = children_of(layout, folder, node_options)

    def start(self) -> None:
        """Starts every process in the background; events report its state."""
        self._keepers = [
            asyncio.create_task(self._keep(child), name=f"keep {child.member.id}") for child in self.children
        ]

    async def stop(self, patience_s: float = STOP_S) -> None:
        """Sends SIGTERM, and SIGKILL after `patience_s`. Returns when all processes have ended."""
        self._stopping.set()
        for child in self.children:
            child.send(signal.SIGTERM)
        waiting = [keeper for keeper in self._keepers if not keeper.done()]
        if waiting and (await asyncio.wait(waiting, timeout=patience_s))[1]:
            for child in self.children:
                if child.pid is not None:
                    text = f"{child.member.id} did not stop within {patience_s:g} s: killed (acknowledged writes stay)"
                    self._emit(SupervisorEvent("killed", text, {"node": child.member.id}))
            self.kill()
        await asyncio.gather(*self._keepers)

    def kill(self) -> None:
        """Sends SIGKILL to all processes."""
        self._stopping.set()
        for child in self.children:
            child.send(signal.SIGKILL)

    async def _keep(self, child: Child) -> None:
        """Runs the process until the cluster stops or the process refuses to run."""
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            ending, reason = await self._run_once(child)
            if self._stopping.is_set():
                return
            if ending is Ending.MUST_JOIN:
                self._join_again(child)
                continue
            if ending is Ending.LOST:
                self._emit_lost(child)
                return
            failures = failures_in_a_row(failures, time.monotonic() - started)
            pause_s = backoff_s(failures) if ending is Ending.FAILED else None
            if ending is Ending.REMOVED:
                await self._wait_until_emptied(child, reason)
                continue
            then = (
                "it stays down until the cause is removed" if pause_s is None else f"starting it again in {pause_s:g} s"
            )
            self._emit_exit(child, reason, then, pause_s)
            if pause_s is None:
                self.refused[child.member.id] = "; ".join(child.last_lines(1)) or reason
                return
            await self._pause(pause_s)

    def _emit_lost(self, child: Child) -> None:
        """Its log proposes --join, which an operator of `palisade up` cannot give."""
        node, reason = child.member.id, "its data folder was lost or swapped"
        remedy = f"run 'palisade member remove {node}', then stop and start 'palisade up'"
        self.refused[node] = reason
        self.lost.add(node)
        text = f"{node} ended: {reason}; it stays down. To replace {node} while a majority runs, {remedy}"
        fields = {"node": node, "reason": reason, "log_lines": child.last_lines(), "restart_in_s": None}
        self._emit(SupervisorEvent("node-exited", text, {**fields, "remedy": remedy}))

    async def _wait_until_emptied(self, child: Child, reason: str) -> None:
        """A removed node may not return with its old storage, but with an empty one."""
        then = f"to let it join again, empty {child.data_dir} (it then joins automatically)"
        self._emit_exit(child, reason, then, None)
        self.removed[child.member.id] = "; ".join(child.last_lines(1)) or reason
        while not self._stopping.is_set() and child.has_data():
            await self._pause(EMPTIED_POLL_S)
        self.removed.pop(child.member.id)

    def _join_again(self, child: Child) -> None:
        """Its storage is new, so it may join under its old name."""
        running = (each for each in self.children if each is not child and each.pid is not None)
        at = next(running, self.children[0]).member.http
        child.start_with([*arguments(self.layout, child.member.id, join=str(at)), *self._node_options])
        text = (
            f"{child.member.id} has a new data folder, with which the cluster does not know it: it joins again at {at}"
        )
        self._emit(SupervisorEvent("node-joins", text, {"node": child.member.id, "join": str(at)}))

    async def _run_once(self, child: Child) -> tuple[Ending, str]:
        try:
            await child.start()
        except OSError as error:
            return Ending.FAILED, f"the process cannot be started: {error}"
        text = f"{child.member.id} started, process {child.pid}, log {child.log_path}"
        fields = {"node": child.member.id, "pid": child.pid, "log": str(child.log_path)}
        self._emit(SupervisorEvent("node-started", text, fields))
        if self._stopping.is_set():
            child.send(signal.SIGTERM)
        code = await child.wait()
        return judge(code), describe_exit(code)

    async def _pause(self, seconds: float) -> None:
        """Waits; returns at once when the cluster stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _emit_exit(self, child: Child, reason: str, then: str, pause_s: float | None) -> None:
        lines = child.last_lines()
        text = "\n    ".join([f"{child.member.id} ended: {reason}; {then}", *lines])
        fields = {"node": child.member.id, "reason": reason, "log_lines": lines, "restart_in_s": pause_s}
        self._emit(SupervisorEvent("node-exited", text, fields))


def children_of(layout: Layout, folder: Path, node_options: list[str]) -> list[Child]:
    return [
        Child(member, folder / member.id, [*arguments(layout, member.id), *node_options]) for member in layout.members()
    ]


def arguments(layout: Layout, node: str, join: str | None = None) -> list[str]:
    """The options of `palisade node` for this node. `join`: the member that it joins; None for a founding member."""
    member = next(member for member in layout.members() if member.id == node)
    return [
        *("--id", member.id),
        *("--cluster", layout.cluster),
        *("--http", str(member.http)),
        *("--peer", str(member.peer)),
        *("--stream", str(member.stream)),
        *("--swim", str(layout.swim()[node])),
        *("--seeds", ",".join(str(address) for address in layout.swim().values())),
        *(("--initial-cluster", layout.initial_cluster()) if join is None else ("--join", join)),
    ]
