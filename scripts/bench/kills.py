"""kill -9 of the leader under load, repeatedly (issue 2, "How fast").

    scripts/bench/run kills [--count N] [--no-keep]

Three nodes on loopback and twelve writers through all of them. Each round kills the leader, waits for the first write
that was sent after that to be acknowledged, starts the node again and waits until it is ready. At the end every
acknowledged write must exist exactly once, and the replicas must be equal. Exit codes: 0 every threshold is met, 1 one
is not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[2]))

from harness.figures import Line, Threshold, all_pass, alone
from harness.report import KEPT, keep, show, surroundings
from tests.support.load import Load, Record, check_record
from tests.support.processes import Cluster

WRITES_GO_ON_S = Threshold(at_most=2.5)
NONE_LOST = Threshold(at_most=0)


async def kill_leaders(folder: Path, count: int) -> tuple[list[float], Record, int]:
    """Seconds until writes resumed after each kill, the numbers of writes, and how many of them are missing."""
    cluster = Cluster(folder)
    gaps: list[float] = []
    try:
        cluster.start()
        await cluster.ready()
        async with Load(cluster.endpoints, "kills", pause_s=0.02, timeout_s=20) as load:
            for _ in track(range(count), description="kill -9 of the leader"):
                await load.writes(50)
                leader = await cluster.leader()
                leader.kill()
                gaps.append(await load.writes_sent_after(time.monotonic()))
                leader.start()
                await cluster.ready()
            record = await load.stop()
            lost = await count_lost(record, load.prefix, cluster)
    finally:
        cluster.kill()
    return gaps, record, lost


async def count_lost(record: Record, prefix: str, cluster: Cluster) -> int:
    """0 if every acknowledged write exists exactly once on equal replicas; else prints the violations."""
    try:
        await check_record(record, prefix, cluster.endpoints)
        await cluster.equal_digests()
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def lines_of(gaps: list[float], lost: int) -> list[Line]:
    return [
        alone("acknowledged and lost, or doubled", "", float(lost), NONE_LOST),
        alone("writes go on after, median", "s", statistics.median(gaps), WRITES_GO_ON_S),
        alone("writes go on after, worst", "s", max(gaps), WRITES_GO_ON_S),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="how many kills in a row")
    parser.add_argument("--no-keep", action="store_true", help="do not write the figures to docs/benchmarks")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palisade-kills-") as folder:
        where = surroundings(Path(folder))
        gaps, record, lost = uvloop.run(kill_leaders(Path(folder), options.count))
    lines = lines_of(gaps, lost)
    counted = (
        f"{len(gaps)} kills of the leader, {len(record.spans):,} writes acknowledged, {len(record.unknown)} unknown"
    )
    show(counted, lines)
    if not options.no_keep:
        content: dict[str, Any] = {
            **where,
            "benchmark": counted,
            "lines": [line.to_json() for line in lines],
            "gaps_s": [round(gap, 3) for gap in gaps],
        }
        print(f"kept in {keep('kills', KEPT, content)}")
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
