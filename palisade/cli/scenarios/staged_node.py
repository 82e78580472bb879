"""`python -m palisade.cli.scenarios.staged_node PLAN node --id f1 ...`: a node with a component on its vault.

PLAN (JSON) adds a component to the node that delays and records each notification, and a step at which the process dies
during a change of its local data. None of this is part of `palisade node`.

    listener_ms   the delay of the component for each revision
    holds_at      the number of revisions after which it waits until the file `until` exists
    notified      the file to which it appends the changes it got, as lines of JSON
    dies_at_step  SIGKILL to itself in the middle of this step with its segments, with the file half written
    pin_life_s    the maximum time for which this node may hold MM while it recovers
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from palisade.cli import node_command
from palisade.cli.main import main
from palisade.node.config import NodeConfig
from palisade.node.follower import FollowerNode
from palisade.recovery.compaction_pin import PIN_LIFE_S_MAX
from palisade.recovery.lifecycle import Component, Lifecycle, Part
from palisade.recovery.listeners import Listeners, Notification
from palisade.recovery.vault_component import OnVault
from palisade.segments.disk import FolderDisk

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class StagingPlan:
    listener_ms: float = 0.0
    holds_at: int = 0
    until: str = ""
    notified: str = ""
    dies_at_step: int = 0
    pin_life_s: float = PIN_LIFE_S_MAX


class Ledger(Component):
    """Records its calls, and waits according to the plan."""

    def __init__(self, plan: StagingPlan, listeners: Listeners) -> None:
        self._plan, self._listeners = plan, listeners
        self._heard = 0

    async def start(self) -> None:
        self._listeners.listen("ledger", self._on_change)

    async def _on_change(self, notification: Notification) -> None:
        if self._plan.listener_ms:
            await asyncio.sleep(self._plan.listener_ms / 1000)
        self._heard += 1
        if self._heard == self._plan.holds_at:
            while not is_there(self._plan.until):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        if self._plan.notified:
            keys = [event.key.decode() for event in notification.events]
            line = {"revision": notification.revision, "keys": keys, "last": notification.last}
            write_line(Path(self._plan.notified), json.dumps(line))


def is_there(path: str) -> bool:
    return Path(path).exists()


def write_line(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


class DyingDisk(FolderDisk):
    """Ends the process with a truncated file under its final name, as after a power loss."""

    def __init__(self, folder: Path, dies_at: int) -> None:
        super().__init__(folder)
        self._at, self._dies_at = folder, dies_at
        self._steps = 0

    async def rename(self, old: str, new: str) -> None:
        content = (self._at / old).read_bytes()
        self._step(new, content)
        await super().rename(old, new)

    async def remove(self, file: str) -> None:
        path = self._at / file
        self._step(file, path.read_bytes() if path.exists() else b"")
        await super().remove(file)

    def _step(self, file: str, content: bytes) -> None:
        self._steps += 1
        if self._steps == self._dies_at:
            (self._at / file).write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)


def make_staged(plan: StagingPlan, config: NodeConfig) -> FollowerNode:
    listeners = Listeners()
    listens = plan.notified or plan.listener_ms or plan.holds_at
    parts = [Part("ledger", Ledger(plan, listeners))] if listens else []
    node = FollowerNode(config, OnVault(Lifecycle(parts, listeners), pin_life_s_max=plan.pin_life_s))
    if plan.dies_at_step and node.segments.local.holder is not None:
        node.segments.local.holder.segment_store.disk = DyingDisk(config.data_dir / "segments", plan.dies_at_step)
    return node


if __name__ == "__main__":
    node_command.run = partial(node_command.run, make=partial(make_staged, StagingPlan(**json.loads(sys.argv[1]))))
    sys.argv = ["palisade", *sys.argv[2:]]
    main()
