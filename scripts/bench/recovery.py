"""Recovery times of a node: replay, snapshot by difference, join with LV = LM (issue 3, "How fast").

    scripts/bench/run recovery [--keys N] [--rounds N] [--data-dir D] [--keep D] [--plot FILE] [--no-keep]

Two parts. In one process, without network and group: a replica, its source, and a node that recovers from it through
one listener that does nothing, on LMDB, over stores and absences of several sizes; the plot is made of these. Then with
real processes: three members, and a node that follows them over HTTP. Medians of the rounds count. Exit codes: 0 every
threshold is met, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop

from harness.figures import Line, Threshold, all_pass, alone
from harness.followers import Followed, follow
from harness.palisade import Palisade
from harness.plot import Chart, Series, svg
from harness.process import ProcessEnded
from harness.recoveries import PERCENT, Measured, measure
from harness.report import KEPT, ROOT, ToolMissing, keep, need, show, surroundings
from harness.system import NotReady
from harness.wrk import LoadFailed

REPLAYED_PER_S = Threshold(at_least=50_000)
OF_BYTES = Threshold(at_most=0.03)
OF_TIME = Threshold(at_most=0.2)
JOIN_S = Threshold(at_most=1.5)
NOTHING = Threshold()
MIB = 1 << 20
SIZES_PERCENT = (1, 3, 10, 30)
"""Of the keys: the smaller stores."""
MISSED_PER_MILLE = (1, 10, 100, 1000)
"""Of the keys, overwritten in the largest store while the node was away."""
PLOT = ROOT / "docs" / "recovery-times.svg"


async def alone_in_process(options: argparse.Namespace, folder: Path) -> list[Measured]:
    """The last one is the largest store."""
    found = []
    for percent in SIZES_PERCENT:
        keys = options.keys * percent // PERCENT
        found.append(await measure(folder / str(keys), keys, [keys // PERCENT], options.rounds))
        print(f"{keys:,} keys: done", flush=True)
    missed = [options.keys * each // 1000 for each in MISSED_PER_MILLE]
    found.append(await measure(folder / "all", options.keys, missed, options.rounds))
    print(f"{options.keys:,} keys: done; now with processes", flush=True)
    return found


def judged(found: Measured, followed: Followed) -> list[Line]:
    changed = found.keys // PERCENT
    full_bytes, full_s = found.full_bytes(), found.full_s()
    replays = [
        alone(f"replay of {missed:,}, one listener", "revisions/s", missed / found.replay_s(missed), wanted)
        for missed, wanted in zip(found.replay, (NOTHING, NOTHING, REPLAYED_PER_S, REPLAYED_PER_S), strict=True)
    ]
    return [
        *replays,
        alone("replay over HTTP, a node that follows", "revisions/s", followed.replayed_per_s, NOTHING),
        alone("full copy", "MiB", full_bytes / MIB, NOTHING),
        alone("full copy", "s", full_s, NOTHING),
        alone("1 % changed, bytes of a full copy", "ratio", found.difference_bytes(changed) / full_bytes, OF_BYTES),
        alone("1 % changed, time of a full copy", "ratio", found.difference_s(changed) / full_s, OF_TIME),
        alone("LV = LM, a node that follows: start to serving", "s", statistics.median(followed.join_s), JOIN_S),
        alone("LV = LM, a member: start to serving", "s", statistics.median(followed.voter_s), NOTHING),
    ]


def drawn(found: Sequence[Measured]) -> str:
    largest = found[-1]
    by_size: list[tuple[str, list[tuple[float, float]]]] = [
        ("full copy", [(each.keys, each.full_s()) for each in found]),
        ("1 % by difference", [(each.keys, each.difference_s(each.keys // PERCENT)) for each in found]),
        ("1 % by replay", [(each.keys, each.replay_s(each.keys // PERCENT)) for each in found]),
        ("LV = LM", [(each.keys, each.join_s()) for each in found]),
    ]
    by_missed: list[tuple[str, list[tuple[float, float]]]] = [
        ("replay", [(missed, largest.replay_s(missed)) for missed in largest.replay]),
        ("by difference", [(missed, largest.difference_s(missed)) for missed in largest.difference]),
    ]
    return svg(
        [
            _chart(f"Recovery of a store of {largest.keys:,} keys", "missed revisions, each of another key", by_missed),
            _chart("Recovery by the size of the store", "keys in the store", by_size),
        ]
    )


def _chart(title: str, x_label: str, lines: Sequence[tuple[str, list[tuple[float, float]]]]) -> Chart:
    return Chart(title, x_label, "seconds", [Series(name, points) for name, points in lines])


async def run(options: argparse.Namespace) -> tuple[list[Line], dict[str, Any], str]:
    with tempfile.TemporaryDirectory(prefix="palisade-bench-", dir=options.data_dir) as temporary:
        folder = Path(temporary)
        content: dict[str, Any] = {"machine": surroundings(folder), "keys": options.keys}
        found = await alone_in_process(options, folder)
        async with Palisade(folder / "nodes") as system:
            followed = await follow(system, options.keys, options.rounds)
    lines = judged(found[-1], followed)
    content["result"] = [line.to_json() for line in lines]
    content["in_one_process"] = [asdict(each) for each in found]
    content["over_http"] = followed.as_dict()
    return lines, content, drawn(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000, help="at least 10,000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data-dir", type=Path, help="where everything is written; default: that for temporary files")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where the JSON goes")
    parser.add_argument("--plot", type=Path, default=PLOT, help="where the plot goes")
    parser.add_argument("--no-keep", action="store_true", help="write neither JSON nor plot")
    options = parser.parse_args()
    if options.keys < 10_000 or options.rounds < 1:
        parser.error("--keys has to be 10000 or more, --rounds 1 or more")
    try:
        need("setpriv")
        lines, content, plot = uvloop.run(run(options))
    except (ToolMissing, NotReady, ProcessEnded, LoadFailed) as error:
        print(f"recovery: {error}", file=sys.stderr)
        return 2
    show(f"{options.keys:,} keys with 100-byte values", lines)
    if not options.no_keep:
        options.plot.write_text(plot)
        print(f"kept in {keep('recovery', options.keep, content)} and {options.plot}")
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
