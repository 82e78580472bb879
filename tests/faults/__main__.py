"""Run scenarios with real processes, one after the other, each with its own seed.

Without --seconds or --minutes, every scenario runs once; with them, scenarios run for that time. Exit codes: 0 every
scenario held, 1 one did not, 2 wrong arguments, 130 Ctrl-C. Each failure prints a command that repeats it, although
real processes never run in exactly the same way again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.running import played, shown
from tests.faults.scenarios import SCENARIOS
from tests.support.planted_fence import FAULTS

SPARE_S = 150.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the scenarios, with a sentence about each")
    parser.add_argument(
        "--scenario", action="append", choices=sorted(SCENARIOS), metavar="NAME", help="only this one (repeatable)"
    )
    parser.add_argument("--seed", type=int, help="seed of the first scenario; random and printed if not given")
    parser.add_argument("--seconds", type=float, help="run scenarios for this time")
    parser.add_argument("--minutes", type=float, help="the same in minutes")
    parser.add_argument(
        "--each-seconds", type=float, default=30.0, help="duration of each scenario that has no end of its own (30)"
    )
    parser.add_argument(
        "--times", type=int, default=9, help="number of repetitions in scenarios that repeat one fault (9)"
    )
    parser.add_argument(
        "--network",
        choices=("auto", "namespaces", "loopback"),
        default="auto",
        help="where links are broken: in network namespaces, or in a relay on loopback (auto: namespaces, if allowed)",
    )
    parser.add_argument(
        "--plant",
        choices=sorted(FAULTS),
        metavar="FAULT",
        help="plant this fault in every node: it must be found. Any other name lists the faults",
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="print each step on stderr")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each scenario, and one for all")
    given = parser.parse_args()
    if given.times < 1 or given.each_seconds <= 0 or (given.seconds or 1) <= 0 or (given.minutes or 1) <= 0:
        parser.error("--times, --seconds, --each-seconds and --minutes must be positive")
    return given


def listed() -> None:
    width = max(map(len, SCENARIOS))
    for name, scenario in SCENARIOS.items():
        print(f"{name:{width}}  {' '.join((scenario.__doc__ or '').split())}")


def to_play(given: argparse.Namespace, seed: int) -> Iterator[tuple[str, int]]:
    """Until the time is over; each of them once, if no time is given."""
    names = given.scenario or list(SCENARIOS)
    budget_s = given.seconds if given.seconds is not None else (given.minutes or 0) * 60
    ends, turn = time.monotonic() + budget_s, 0
    while turn < len(names) or (budget_s and time.monotonic() < ends):
        if budget_s and time.monotonic() >= ends:
            return
        yield names[turn % len(names)], seed + turn
        turn += 1


async def one(given: argparse.Namespace, scenario: str, seed: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="palisade-faults-"))
    options = [f"--seed={seed}", f"--seconds={given.each_seconds}", f"--times={given.times}"]
    options += [f"--network={given.network}", f"--folder={folder}"]
    options += [f"--plant={given.plant}"] if given.plant else []
    began = time.monotonic()
    within_s = SPARE_S + given.each_seconds + 40 * given.times
    report = await played(scenario, *options, within_s=within_s, show=given.verbose)
    report |= {"seed": seed, "folder": str(folder), "took_s": round(time.monotonic() - began, 1)}
    if held(report):
        shutil.rmtree(folder, ignore_errors=True)
    return report


def held(report: dict[str, Any]) -> bool:
    return report["failed"] is None and not report["violations"]


def print_report(given: argparse.Namespace, report: dict[str, Any]) -> None:
    if given.json:
        print(json.dumps(report), flush=True)
        return
    numbers = {name: round(value, 2) for name, value in report.items() if isinstance(value, int | float)}
    line = ", ".join(f"{name} {value}" for name, value in numbers.items() if name != "seed")
    print(f"{'held  ' if held(report) else 'FAILED'} {report['scenario']} --seed {report['seed']}: {line}", flush=True)
    if not held(report):
        print(shown(report), flush=True)
        again = f"scripts/faults --scenario {report['scenario']} --seed {report['seed']}"
        print(f"again: {again}   its files: {report['folder']}", flush=True)


async def play(given: argparse.Namespace) -> int:
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    if not given.json:
        print(f"from seed {seed}", flush=True)
    counts: Counter[str] = Counter()
    failed: list[str] = []
    for scenario, its_seed in to_play(given, seed):
        report = await one(given, scenario, its_seed)
        print_report(given, report)
        counts[scenario] += 1
        failed += [] if held(report) else [f"{scenario} --seed {its_seed}"]
    if given.json:
        print(json.dumps({"seed": seed, "played": counts, "failed": failed}), flush=True)
    else:
        print(f"{sum(counts.values())} played, {len(failed)} failed {'; '.join(failed)}".rstrip(), flush=True)
    return 1 if failed else 0


def main() -> int:
    given = arguments()
    if given.list:
        listed()
        return 0
    try:
        return asyncio.run(play(given))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
