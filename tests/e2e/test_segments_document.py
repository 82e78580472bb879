"""The commands and programs of docs/segments.md as typed, on a cluster of two data nodes; then a segment loses its last
server. `catalog/test_parquet_rows.py` runs the program that computes a digest."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palisade.client import Client
from tests.e2e.test_documents import blocks_of
from tests.e2e.test_segment_copies import write_catalog, write_origin
from tests.support.processes import Cluster, palisade, palisade_json, until

pytestmark = pytest.mark.e2e

PAGE = (Path(__file__).parents[2] / "docs" / "segments.md").read_text(encoding="utf-8")
DEMO = "Copies on data nodes", "Retention"
"""The sections whose commands need the demo, with three nodes; `test_demo_count.py` runs one of them."""
DOCUMENT = re.sub(rf"^## ({'|'.join(DEMO)})\n.*?(?=^## )", "", PAGE, flags=re.MULTILINE | re.DOTALL)
DAY = "2013-01-01", "2013-01-02"


def typed() -> list[tuple[list[str], list[list[str]]]]:
    """Each command, and its output in words by line; empty where the page shows none."""
    found: list[tuple[list[str], list[list[str]]]] = []
    for block in re.findall(r"```console\n(.*?)```", DOCUMENT, re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((shlex.split(line[2:]), []))
            else:
                found[-1][1].append(line.split())
    return found


async def test_commands_of_the_page_work_as_shown(
    new_cluster: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALISADE_SEGMENTS", "true")
    write_origin(tmp_path / "origin", rows=3)
    days = tmp_path / "days.json"
    days.write_text(re.findall(r"```json\n(.*?)```", DOCUMENT, re.S)[0], encoding="utf-8")
    rows = tmp_path / "rows.jsonl"
    rows.write_text(re.findall(r"```jsonl\n(.*?)```", DOCUMENT, re.S)[0], encoding="utf-8")
    files = {days.name: str(days), rows.name: str(rows)}
    cluster = new_cluster(2, segments_origin=str(tmp_path / "origin"))
    cluster.start()
    await cluster.ready()
    endpoints = ",".join(cluster.endpoints)

    async def run(arguments: list[str]) -> list[list[str]]:
        given = [files.get(each, each) for each in arguments[1:]]
        code, out, err = await palisade(*given, "--endpoints", endpoints)
        assert code == 0, (arguments, err)
        return [line.split() for line in out.splitlines() if line]

    for arguments, expected in typed():
        if "assign" in arguments:
            await write_catalog(cluster, tmp_path / "origin")
        found = await run(arguments)
        assert not expected or found == expected, arguments
        if "assign" in arguments:
            await until(lambda: all_served(cluster), "every copy being announced and marked")

    await programs_work(cluster, endpoints)
    await last_server_dies(cluster, endpoints)


async def programs_work(cluster: Cluster, endpoints: str) -> None:
    """A lookup over HTTP and in Python returns what the command returns; rows are appended from Python."""
    lookup = next(arguments for arguments, _ in typed() if arguments[1:4] == ["segments", "lookup", "flights"])
    by_command = (await palisade_json(*lookup[1:], "--endpoints", endpoints))["segments"]
    assert len(by_command) == 2
    over_http = re.findall(r"`GET (/v1/segments/lookup\S+)`", DOCUMENT)
    in_python = re.findall(r"in Python `(segments_lookup\(.*?\))`", DOCUMENT)
    assert (len(over_http), len(in_python)) == (1, 1)
    answer = await cluster.running[0].get(over_http[0])
    assert answer is not None
    assert answer["segments"] == by_command
    for program in (f"async with Client({cluster.endpoints}) as client:\n    found = await client.{in_python[0]}",
                    f"with SyncClient({cluster.endpoints}) as client:\n    found = client.{in_python[0]}"):  # fmt: skip
        assert (await executed(f"{program}\nreturn found"))["segments"] == by_command

    count = "query", "count", "clicks", "--from=2013-03-01", "--to=2013-03-02", "--endpoints", endpoints
    before = (await palisade_json(*count))["rows"]
    (appending,) = (block for block in blocks_of(DOCUMENT, "python") if "client.realtime(" in block)
    assert "`with connect(...) as client:`, `with client.realtime(...) as writer:`" in DOCUMENT
    blocking = appending.replace("async with Client(", "with connect(").replace("async ", "").replace("await ", "")
    for number, program in enumerate((appending, blocking), 1):
        await executed(program.replace('"127.0.0.1:7601"', str(cluster.endpoints)))
        assert (await palisade_json(*count))["rows"] == before + number


async def executed(program: str) -> Any:
    """What the body of a coroutine returns, executed in a thread with an event loop of its own."""
    body = textwrap.indent(program, "    ")
    named: dict[str, Any] = {}
    exec(f"from palisade import Client, SyncClient, connect\n\nasync def main():\n{body}\n", named)
    return await asyncio.to_thread(lambda: asyncio.run(named["main"]()))


async def all_served(cluster: Cluster) -> bool:
    async with Client(cluster.endpoints) as client:
        found = await client.segments_list("flights")
    return all(each["state"] == "served" and len(each["nodes"]) == 2 for each in found["segments"])


async def last_server_dies(cluster: Cluster, endpoints: str) -> None:
    """Both data nodes restart without --segments: their leases end, and nothing is silently left out."""

    async def lookup(*more: str) -> tuple[int, Any]:
        times = "--from", DAY[0], "--to", DAY[1]
        code, out, err = await palisade(
            "segments", "lookup", "flights", *times, *more, "--json", "--endpoints", endpoints
        )
        return code, json.loads(out or err)

    for node in cluster.running:
        node.kill()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PALISADE_SEGMENTS")
        cluster.start()
        await cluster.ready()

    async def unavailable() -> bool:
        code, found = await lookup()
        assert code == 3 or len(found["segments"]) == 1, found
        return code == 3 and bool(found["error"]["code"] == "segments-unavailable")

    await until(unavailable, "the announcements ending with their leases")
    code, found = await lookup("--on-missing=allow")
    assert (code, len(found["missing"]), found["segments"]) == (0, 1, [])
