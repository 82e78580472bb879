"""The data of a follower beside its vault, by their owner: those of each key are evicted and fetched step by step (R5).

Half-evicted and half-fetched data look complete. Thus a node that died in an eviction may only rely on its stored plan,
also if it then needs another snapshot. `checkers/local_data.py` checks that nothing incomplete is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from palisade.vault.vault import Vault

SPAN = (b"q", b"t")
"""The keys with data. Their version is the revision in which the key was created."""
STEPS, STEP_S = 3, 0.002
PIN_LIFE_S = 2.0
"""So that MM passes LV while a follower is down, which died in an eviction."""


@dataclass(slots=True)
class Held:
    version: str
    whole: bool


@dataclass(slots=True)
class Shelf:
    """On the disk of a machine. `on_step`: called between two steps of a fetch or an eviction."""

    held: dict[str, Held] = field(default_factory=dict)
    on_step: Callable[[], None] = lambda: None


class LocalData:
    """A `recovery.ports.Resources`."""

    def __init__(self, shelf: Shelf, vault: Vault) -> None:
        self._shelf, self._vault = shelf, vault

    async def local(self) -> dict[str, str]:
        return {name: held.version for name, held in self._shelf.held.items()}

    async def assigned(self) -> dict[str, str]:
        return {item.key.decode(): str(item.create_revision) for item in self._vault.range(*SPAN)}

    async def evict(self, name: str) -> None:
        held = self._shelf.held.get(name)
        if held is not None:
            held.whole = False
            await self._take_steps()
            del self._shelf.held[name]

    async def fetch(self, name: str, version: str) -> None:
        self._shelf.held[name] = Held(version, whole=False)
        await self._take_steps()
        self._shelf.held[name].whole = True

    async def _take_steps(self) -> None:
        for _ in range(STEPS):
            await asyncio.sleep(STEP_S)
            self._shelf.on_step()
