"""A cluster is initialized from waiting nodes (R9; scenarios.md, "Recovery": init twice, init cancelled half-way)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import NodeProcess, palisade, until

pytestmark = pytest.mark.e2e

REFUSED, USAGE = 1, 2


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    made = [NodeProcess(tmp_path, f"n{number}") for number in (1, 2, 3)]
    for node in made:
        node.options["seeds"] = made[0].peer
    yield made
    for node in made:
        node.kill()


async def sees(node: NodeProcess, count: int) -> bool:
    answer = await node.get("/v1/topology")
    return answer is not None and sum(row["state"] == "alive" for row in answer["physical"]) == count


async def is_active(node: NodeProcess) -> bool:
    answer = await node.get("/v1/topology")
    return answer is not None and any(row["id"] == node.id and row["standing"] == "active" for row in answer["logical"])


async def state_of(node: NodeProcess) -> str | None:
    answer = await node.get("/v1/init")
    return answer["state"] if answer else None


async def test_init_is_cancelled_completed_repeated_and_rejected(nodes: list[NodeProcess]) -> None:
    for node in nodes:
        node.start()
    for node in nodes:
        await until(lambda node=node: sees(node, 3), f"{node.id} seeing all")
    code, _, said = await palisade("init", "n1", "n1", "n3", "--at", nodes[0].http)
    assert (code, "n1: named twice in MEMBERS; name each node once" in said) == (USAGE, True)
    nodes[2].pause()
    code, _, said = await palisade("init", "n1", "n2", "n3", "--at", nodes[0].http, "--timeout", "5")
    assert code == 3, said
    assert await state_of(nodes[0]) == "prepared", said
    code, _, said = await palisade("init", "n1", "n2", "--at", nodes[0].http)
    assert code == REFUSED
    assert "complete it, or cancel it" in said
    code, out, said = await palisade("init", "n1", "n2", "n3", "--cancel", "--at", nodes[0].http)
    assert (code, out) == (3, "n1: cancelled\nn2: cancelled\nn3: did not answer\n"), said
    assert await state_of(nodes[0]) == "idle"
    nodes[2].resume()
    for node in nodes:
        await until(lambda node=node: sees(node, 3), f"{node.id} seeing all again")
    code, out, said = await palisade("init", "n3", "n2", "n1", "--at", nodes[1].http)
    assert (code, out.strip()) == (0, "initialized: n1, n2, n3"), said
    code, out, said = await palisade("status", "--endpoints", ",".join(node.stream for node in nodes))
    assert code == 0, f"no node listened right after the initialization: {said}"
    for node in nodes:
        await until(node.ready, f"{node.id} being ready (its log ends with: {node.log()[-800:]})")
    code, _, said = await palisade("init", "n1", "n2", "n3", "--at", nodes[2].http)
    assert code == 0, f"ready, and before the cluster has its rules: {said}"
    assert (await nodes[0].put("a", "b") or {}).get("http_status") == 200
    await until(lambda: is_active(nodes[2]), "n3 being in the logical topology: the cluster has its rules then")
    code, _, said = await palisade("init", "n1", "n2", "n3", "--at", nodes[2].http)
    assert code == 0, said
    code, _, said = await palisade("init", "n1", "n2", "--at", nodes[2].http)
    assert code == REFUSED
    assert "is initialized with n1, n2, n3" in said
    nodes[0].kill()
    nodes[0].start()
    await until(nodes[0].ready, "n1 being ready after a restart with the same options")
