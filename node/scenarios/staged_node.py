"""`python -m node.scenarios.staged_node PLAN node --id f1 ...`: a node with something on its vault, for scenarios.

A plain node has no components on its vault and holds nothing beside it. To show what they are told and what becomes of
local data, PLAN (JSON) gives it some: a component that takes its time and writes down what it hears, a folder of
partitions, and the place where the process is to die. None of this is part of `palisade node`.

    listener_ms   how long the component takes for each revision
    holds_at      after how many of them it waits for the file `until` to be there
    told          the file into which it writes what it has been told, a line of JSON each
    partitions    the folder of the partitions of flights
    dies_at_step  SIGKILL to itself in the middle of this step of its eviction, with the resource half there
    pin_life_s    how long this node may hold MM while it recovers
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

from node.cli import node_command
from node.cli.main import main
from node.components.lifecycle import Component, Lifecycle, Part
from node.components.listeners import Listeners, Told
from node.config import NodeConfig
from node.follower import FollowerNode
from node.scenarios.edits import FLIGHTS
from node.vault_keeper import OnVault
from recovery.pinning import PIN_LIFE_S_MAX
from recovery.ports import Resources
from vault.vault import Vault

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    listener_ms: float = 0.0
    holds_at: int = 0
    until: str = ""
    told: str = ""
    partitions: str = ""
    dies_at_step: int = 0
    pin_life_s: float = PIN_LIFE_S_MAX


class Ledger(Component):
    """Writes down what it is told, and takes its time."""

    def __init__(self, plan: Plan, listeners: Listeners) -> None:
        self._plan, self._listeners = plan, listeners
        self._heard = 0

    async def start(self) -> None:
        self._listeners.listen("ledger", self._hear)

    async def _hear(self, told: Told) -> None:
        if self._plan.listener_ms:
            await asyncio.sleep(self._plan.listener_ms / 1000)
        self._heard += 1
        if self._heard == self._plan.holds_at:
            while not is_there(self._plan.until):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        if self._plan.told:
            keys = [event.key.decode() for event in told.events]
            line = {"revision": told.revision, "keys": keys, "last": told.last}
            write_line(Path(self._plan.told), json.dumps(line))


def is_there(path: str) -> bool:
    return Path(path).exists()


def write_line(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


class PartitionFolder:
    """The partitions of flights as files: `recovery.ports.Resources`. The first line of a file is its version."""

    def __init__(self, plan: Plan, vault: Vault) -> None:
        self._folder = Path(plan.partitions)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._vault = vault
        self._dies_at = plan.dies_at_step
        self._steps = 0

    async def local(self) -> dict[str, str]:
        return {file.name: file.read_text(encoding="utf-8").partition("\n")[0] for file in self._folder.iterdir()}

    async def assigned(self) -> dict[str, str]:
        items = self._vault.range(FLIGHTS, FLIGHTS + b"\xff")
        return {name_of(item.key): json.loads(item.value)["digest"] for item in items}

    async def evict(self, name: str) -> None:
        file = self._folder / name
        self._step(file, file.read_text(encoding="utf-8") if file.exists() else "")
        file.unlink(missing_ok=True)

    async def fetch(self, name: str, version: str) -> None:
        file, content = self._folder / name, content_of(name, version)
        self._step(file, content)
        file.write_text(content, encoding="utf-8")

    def _step(self, file: Path, content: str) -> None:
        """The worst moment to die: what is there is torn, and its first line says all the same that it is right."""
        self._steps += 1
        if self._steps == self._dies_at:
            file.write_text(content[:-10], encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)


def name_of(key: bytes) -> str:
    return key.removeprefix(FLIGHTS).decode()


def content_of(name: str, version: str) -> str:
    """What the node holds of a partition; the version says which rows it has."""
    return f"{version}\nthe flights of {name}, as of {version}\n"


def make_staged(plan: Plan, config: NodeConfig) -> FollowerNode:
    listeners = Listeners()
    hears = plan.told or plan.listener_ms or plan.holds_at
    parts = [Part("ledger", Ledger(plan, listeners))] if hears else []
    staged = OnVault(Lifecycle(parts, listeners), pin_life_s_max=plan.pin_life_s)
    if not plan.partitions:
        return FollowerNode(config, staged)

    def held(vault: Vault) -> Resources:
        return PartitionFolder(plan, vault)

    return FollowerNode(config, OnVault(staged.components, held, staged.pin_life_s_max))


if __name__ == "__main__":
    node_command.run = partial(node_command.run, make=partial(make_staged, Plan(**json.loads(sys.argv[1]))))
    sys.argv = ["palisade", *sys.argv[2:]]
    main()
