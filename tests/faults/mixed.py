"""Clients that write, swap and read a few keys through every node and by every way, and whether their history is
linearizable (`tests/sim/linearizability.py`): plain keys by linearizable reads, strict ones also from the vaults.

A write whose answer did not come may have taken effect, then, later, or never: it stays open. A read without an answer
tells nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from tests.sim.linearizability import Op, Verdict, check
from tests.sim.models import Read, Register, Swap, Write
from tests.support.processes import NodeProcess

PATIENCE_S = 2.0
ASKED_AGAIN_S = 0.1


@dataclass
class MixedClients:
    """`async with MixedClients(nodes, chance) as mixed:`; behind it, `violations`. `name`: of its keys, which nobody
    else has written."""

    nodes: Sequence[NodeProcess]
    chance: Random
    name: str = "mixed"
    workers: int = 6
    pause_s: float = 0.01
    ops: dict[str, list[Op]] = field(default_factory=dict)
    _place: int = 0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._strict = (f"/strict/{self.name}/a", f"/strict/{self.name}/b")
        self._keys = (*self._strict, f"/{self.name}/a")
        self.ops = {key: [] for key in self._keys}

    async def __aenter__(self) -> MixedClients:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S))
        for number in range(self.workers):
            reads_alone = number % 2 == 0
            self._tasks.append(asyncio.create_task(self._work(f"c{number}", reads_alone, Random(self.chance.random()))))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for found in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(found, Exception):
                raise found
        await self._session.close()

    @property
    def answered(self) -> int:
        return sum(op.ended is not None for ops in self.ops.values() for op in ops)

    def violations(self) -> tuple[list[str], int]:
        """(what can't be, the keys for which that is not known: too much was open)."""
        reports = {key: check(Register(), ops) for key, ops in self.ops.items()}
        found = [
            f"{key} is not linearizable: {'; '.join(report.explanation)}"
            for key, report in reports.items()
            if report.verdict is Verdict.VIOLATION
        ]
        return found, sum(report.verdict is Verdict.GAVE_UP for report in reports.values())

    def _next_place(self) -> int:
        self._place += 1
        return self._place

    async def _work(self, by: str, reads_alone: bool, chance: Random) -> None:
        """Who reads from vaults alone never waits for a node that can't reach the others."""
        number = 0
        while True:
            number += 1
            node, key = chance.choice(self.nodes), chance.choice(self._strict if reads_alone else self._keys)
            asked = Read() if reads_alone else self._some(chance, key, f"{by}-{number}")
            began, answer = self._next_place(), None
            told = False
            try:
                answer = await self._ask(node, key, asked, reads_alone or chance.random() < 0.5)
                told = True
            except (aiohttp.ClientError, TimeoutError, OSError, Unanswered):
                pass
            finally:
                if told:
                    self.ops[key].append(Op(began, self._next_place(), asked, answer, f"{by} at {node.id}"))
                elif not isinstance(asked, Read):
                    self.ops[key].append(Op(began, None, asked, by=f"{by} at {node.id}"))
            await asyncio.sleep(self.pause_s if told else ASKED_AGAIN_S)

    def _some(self, chance: Random, key: str, value: str) -> Read | Write | Swap:
        draw = chance.random()
        if draw < 0.6:
            return Read()
        known = next((op for op in reversed(self.ops[key]) if isinstance(op.asked, Write)), None)
        return Write(value) if draw < 0.8 or known is None else Swap(known.asked.value, value)

    async def _ask(self, node: NodeProcess, key: str, asked: Any, of_vault: bool) -> Any:
        at = f"http://{node.http}"
        if isinstance(asked, Read):
            if key in self._strict and of_vault:
                return await self._fenced(at, key)
            found = await self._post(f"{at}/v1/range", {"key": key})
            return found["kvs"][0]["value"] if found["kvs"] else None
        if isinstance(asked, Write):
            await self._post(f"{at}/v1/put", {"key": key, "value": asked.value})
            return None
        equal = {"target": "value", "key": key, "relation": "=", "operand": asked.old}
        put = {"put": {"key": key, "value": asked.new}}
        return bool((await self._post(f"{at}/v1/txn", {"compare": [equal], "then": [put]}))["succeeded"])

    async def _post(self, url: str, body: Any) -> Any:
        async with self._session.post(url, json=body) as answer:
            if answer.status != 200:
                raise Unanswered
            return await answer.json()

    async def _fenced(self, at: str, key: str) -> Any:
        async with self._session.get(URL(f"{at}/v1/fenced/{quote(key, safe='')}", encoded=True)) as answer:
            found = await answer.json(content_type=None)
            if answer.status == 404 and found.get("code") == "key-not-found":
                return None
            if answer.status != 200:
                raise Unanswered
            return found["kv"]["value"]


class Unanswered(Exception):
    """Neither a result nor an error of the connection."""
