"""A replicated journal in real processes: kill -9 of the active copy under load; commands of docs/activation.md."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from palisade.journal.client import JournalClient
from palisade.journal.errors import AppendUnknown, NotActive
from tests.support.journal_processes import ROLE, Pair
from tests.support.processes import Cluster, palisade, until

pytestmark = pytest.mark.e2e
FAILOVER_S = 10.0
"""The goal is 3 s on a quiet machine."""


@pytest.fixture
async def pair(new_cluster: Callable[..., Cluster], tmp_path: Path) -> AsyncIterator[Pair]:
    cluster = new_cluster(1)
    cluster.start()
    await cluster.ready()
    pair = Pair(cluster, tmp_path, "--allow-failback")
    pair.a.start()
    pair.b.start()
    await pair.reach("active", "in sync")
    yield pair
    pair.kill()


async def append_until(stop: asyncio.Event, pair: Pair, acknowledged: dict[int, bytes]) -> None:
    async with JournalClient(ROLE, pair.addresses, timeout_s=FAILOVER_S) as client:
        count = 0
        while not stop.is_set():
            count += 1
            content = b"entry %d" % count
            with contextlib.suppress(AppendUnknown, NotActive):
                acknowledged[await client.append(content)] = content
            await asyncio.sleep(0.002)


async def more(acknowledged: dict[int, bytes]) -> None:
    enough = len(acknowledged) + 50
    await until(lambda: len(acknowledged) >= enough, "50 more acknowledged entries")


async def entries_of(pair: Pair) -> dict[int, bytes]:
    async with JournalClient(ROLE, pair.addresses) as client:
        return {number: content async for number, content in client.entries()}


async def test_acknowledged_entries_survive_kill_9_of_the_active_copy(pair: Pair) -> None:
    """It fails over to the backup, back to the primary that was started again, and over once more."""
    acknowledged: dict[int, bytes] = {}
    stop = asyncio.Event()
    load = asyncio.ensure_future(append_until(stop, pair, acknowledged))
    for _ in range(2):
        await more(acknowledged)
        pair.a.kill()
        await more(acknowledged)
        assert (await pair.status())[1]["state"] == "active"
        pair.a.start()
        await pair.reach("active", "in sync")
    stop.set()
    await load
    found = await entries_of(pair)
    assert {number: found.get(number) for number in acknowledged} == acknowledged


async def test_commands_of_the_document_work_as_typed(pair: Pair) -> None:
    """Those of the section "Append and read", with the addresses of this test."""
    text = Path(__file__).parents[2].joinpath("docs/activation.md").read_text(encoding="utf-8")
    section = text.split("## Append and read")[1].split("\n## ")[0]
    typed = re.findall(r"^\$ palisade journal (.*)$", section, re.MULTILINE)
    expected = {"append": "2 entries\t1 to 2\n", "read": "1\torder 1\n2\torder 2\n"}
    assert len(typed) == 3
    for line in typed:
        words = shlex.split(line.replace("127.0.0.1:7901,127.0.0.1:7902", ",".join(pair.addresses)))
        code, out, err = await palisade("journal", *words)
        assert code == 0, err
        assert expected.get(words[0], out) == out
    code, out, _ = await pair.command("read", "--json", "--from=2")
    assert json.loads(out) == {"number": 2, "content": "order 2"}


async def test_second_process_in_one_directory_is_refused(pair: Pair) -> None:
    code, _, err = await pair.a.refused_start()
    assert code == 1
    assert "in use by another process" in err
