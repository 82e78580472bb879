"""A table of segments as a DataFrame, over real data nodes: every row of one answer of the broker, or an error."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import until
from tests.support.segment_ground import END, START, SegmentGround

pytestmark = pytest.mark.e2e


@pytest.fixture
async def ground(data_cluster: Callable[[type[SegmentGround]], SegmentGround]) -> SegmentGround:
    found = data_cluster(SegmentGround)
    await found.ready()
    return found


def table_block(document: str) -> str:
    """The program of the document that reads a table."""
    text = (Path(__file__).parents[2] / document).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return next(block for block in blocks if 'option("table"' in block)


async def test_frame_of_a_table_has_every_row_while_its_segments_move(spark: Any, ground: SegmentGround) -> None:
    options = {
        "endpoints": ",".join(ground.cluster.endpoints), "table": "flights", "interval": f"{START}/{END}",
    }  # fmt: skip

    def load(**more: str) -> Any:
        return spark.read.format("palisade").options(**options, **more).load()

    frame = await asyncio.to_thread(load)
    assert "origin" in frame.columns
    assert await asyncio.to_thread(frame.count) == ground.rows
    chosen = await asyncio.to_thread(load, columns="carrier,origin")
    assert chosen.columns == ["carrier", "origin"]
    assert await asyncio.to_thread(chosen.where("origin IS NOT NULL").count) == ground.rows
    async with ground.client() as client:
        await ground.assign(client, ("f2", "f3") if ground.pair == ("f1", "f2") else ("f1", "f2"))
        await until(lambda: ground.is_settled(client), "the end of the move")
    assert await asyncio.to_thread(frame.count) == ground.rows
    victim = ground[ground.pair[0]]
    victim.kill()
    assert await asyncio.to_thread(frame.count) == ground.rows

    names: dict[str, Any] = {"spark": spark, "nodes": options["endpoints"]}
    await asyncio.to_thread(exec, table_block("docs/pipeline.md"), names)
    assert names["delays"].count() > 0
    block = table_block("README.md").replace("127.0.0.1:7601", options["endpoints"])
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        await asyncio.to_thread(exec, block.replace("2013-03/2013-04", options["interval"]), {})
    assert "carrier|count" in shown.getvalue()
    assert re.search(r"\|\s+UA\|\s*\d+\|", shown.getvalue()), shown.getvalue()

    ground[ground.pair[1]].kill()
    async with ground.client() as client:

        async def lost() -> bool:
            return len((await client.segments_lookup("flights", START, END, on_missing="allow"))["missing"]) == 6

        await until(lost, "the announcements ending")
    with pytest.raises(Exception, match=r"TableUnavailable: UNAVAILABLE: 6 segments:\n(flights/2013-01-0\d\S+\n?){6}"):
        await asyncio.to_thread(load)
