"""`scripts/sim`: runs seeds, prints failures with the fewest faults that reproduce them, and what was reached.

The exit status is 0 if nothing failed and every row was reached that so many seeds must reach, else 1; 2 for wrong
arguments, 130 after Ctrl-C. With a planted fault it is 1 if the fault is proved, as for a run that fails, and 0 if it
is not, whatever else is wrong.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import secrets
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import count, islice
from platform import python_version
from typing import Any

from tests.sim.coverage.table import shown as shown_coverage
from tests.sim.coverage.table import table_of, verdict
from tests.sim.faults import SCENARIOS
from tests.sim.plants import PLANTS
from tests.sim.prove import SEEDS_MAX, matrix, prove, prove_all, shown, uncaught
from tests.sim.run import Outcome, run_seed
from tests.sim.shrink import shrink
from tests.sim.speed import shown_speeds, speeds

INTERRUPTED = 130
TRACE_LINES = 40
AHEAD = 8
"""Seeds submitted per process ahead of the next outcome, so that no process waits for another."""
SEEDS = 1_000_000
"""The number of seeds between which the first is drawn, if time is the bound."""


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/sim", description="Simulate whole clusters, each from one seed.")
    parser.add_argument(
        "--seed", type=int, help="the first seed (default 1); without --count and --minutes: the only one"
    )
    parser.add_argument("--count", type=int, help="number of seeds")
    parser.add_argument("--minutes", type=float, help="run seeds for this time, from a random one or from --seed")
    names = ", ".join(SCENARIOS)
    parser.add_argument(
        "--scenario", choices=[*SCENARIOS, "all"], default="all", metavar="NAME", help=f"only these faults: {names}"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (default 2)")
    parser.add_argument("--trace", action="store_true", help="print the trace of a single seed also if it passes")
    parser.add_argument(
        "--no-shrink", action="store_true", help="do not search for the fewest faults that make a seed fail"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each seed, and one for all")
    parser.add_argument(
        "--plant",
        choices=PLANTS,
        metavar="FAULT",
        help="plant one fault in the product; exit code 1 if its checker reports it. Any other name lists the faults",
    )
    parser.add_argument("--plants", action="store_true", help="plant each fault in turn; fail if one is not reported")
    parser.add_argument("--speed", action="store_true", help="measure how fast simulated time passes, without faults")
    asked = parser.parse_args(arguments)
    if asked.minutes is not None and asked.seed is None:
        asked.seed = secrets.randbelow(SEEDS)
        print(f"from seed {asked.seed}", file=sys.stderr)
    return asked


def tasks(asked: argparse.Namespace) -> Iterator[tuple[int, str]]:
    """(seed, scenario); "all" takes the scenarios in turn."""
    names = list(SCENARIOS) if asked.scenario == "all" else [asked.scenario]
    alone = asked.seed is not None and asked.count is None and asked.minutes is None
    first = asked.seed if asked.seed is not None else 1
    if alone:
        return iter([(first, name) for name in names])
    endless = ((seed, names[seed % len(names)]) for seed in count(first))
    return endless if asked.minutes is not None else islice(endless, asked.count or 100)


def outcomes(asked: argparse.Namespace) -> Iterator[Outcome]:
    until = time.monotonic() + asked.minutes * 60 if asked.minutes is not None else float("inf")
    wanted = tasks(asked)
    if asked.jobs <= 1:
        for seed, name in wanted:
            yield run_seed(seed, name)
            if time.monotonic() > until:
                return
        return
    with ProcessPoolExecutor(asked.jobs) as pool:
        running = deque(pool.submit(run_seed, *task) for task in islice(wanted, AHEAD * asked.jobs))
        while running:
            yield running.popleft().result()
            if time.monotonic() < until:
                running.extend(pool.submit(run_seed, *task) for task in islice(wanted, 1))


class Report:
    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.seeds = 0
        self.failed: list[tuple[int, str]] = []
        self.coverage: Counter[str] = Counter()
        self.simulated_s = self.cpu_s = 0.0
        self.operations = 0
        self.alone = asked.seed is not None and asked.count is None and asked.minutes is None

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.coverage.update(outcome.coverage)
        self.simulated_s += outcome.simulated_s
        self.cpu_s += outcome.cpu_s
        self.operations += outcome.operations
        if outcome.failed:
            self.failed.append((outcome.seed, outcome.scenario))
        if self.asked.json:
            print(json.dumps(as_json(outcome)), flush=True)
            return
        if self.alone or outcome.failed:
            self._show(outcome)
        elif self.seeds % 10 == 0:
            print(f"{self.seeds} seeds, {len(self.failed)} failed", file=sys.stderr, flush=True)

    def _show(self, outcome: Outcome) -> None:
        end = f"FAILED\n{outcome.violation}" if outcome.failed else "well"
        print(f"seed {outcome.seed}, scenario {outcome.scenario}, trace {outcome.digest}: {end}")
        if outcome.failed or self.asked.trace:
            print("\n".join(outcome.trace if self.asked.trace else outcome.trace[-TRACE_LINES:]))
        if outcome.failed and not self.asked.no_shrink:
            print("the fewest faults that still fail by the same checker:")
            fewest = shrink(outcome.plan, lambda plan: run_seed(outcome.seed, outcome.scenario, plan).fails_as(outcome))
            print("\n".join(f"  {fault}" for fault in fewest) or "  none: it fails without any")
        print(f"again: scripts/sim --seed {outcome.seed} --scenario {outcome.scenario}", flush=True)

    def end(self) -> int:
        """The exit status."""
        speed = self.simulated_s / self.cpu_s if self.cpu_s else 0.0
        table = table_of(self.coverage, self.seeds, whole=self.asked.scenario == "all" and not self.alone)
        if self.asked.json:
            print(json.dumps(self.as_json(speed) | {"coverage": table.as_json()}), flush=True)
        else:
            print("", shown_coverage(table) if not self.alone else verdict(table)[-1], sep="\n")
            print(
                f"\n{self.seeds} seeds, {len(self.failed)} failed, {self.operations:,} operations, "
                f"{self.simulated_s:,.0f} s simulated in {self.cpu_s:,.1f} s of CPU: {speed:.0f} times as fast "
                f"(Python {python_version()})"
            )
            for seed, name in self.failed:
                print(f"failed: scripts/sim --seed {seed} --scenario {name}")
        return 1 if self.failed or table.failed else 0

    def as_json(self, speed: float) -> dict[str, Any]:
        return {
            "seeds": self.seeds, "failed": self.failed, "operations": self.operations,
            "simulated_s": round(self.simulated_s, 3), "cpu_s": round(self.cpu_s, 3), "speed": round(speed, 1),
            "python": python_version(),
        }  # fmt: skip


def as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": outcome.seed, "scenario": outcome.scenario, "violation": outcome.violation, "trace": outcome.digest,
        "simulated_s": round(outcome.simulated_s, 3), "liveness_s": round(outcome.liveness_s, 3),
        "cpu_s": round(outcome.cpu_s, 3), "operations": outcome.operations, "faults": len(outcome.plan),
    }  # fmt: skip


def one_plant(asked: argparse.Namespace) -> int:
    """1 if it is seen by the checkers that it is for, and the same run passes without it."""
    proof = prove(asked.plant, asked.seed or 0, asked.count or SEEDS_MAX)
    if not proof.right:
        print(f"not proved: {shown(proof)}", file=sys.stderr)
    print(json.dumps(asdict(proof)) if asked.json else f"{shown(proof)}\n{proof.violation}")
    return 1 if proof.right else 0


def all_plants(asked: argparse.Namespace) -> int:
    """0 if each of them is seen by every checker that it is for, and each checker has seen one."""
    proofs = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for proof in prove_all(pool):
            proofs.append(proof)
            print(json.dumps(asdict(proof)) if asked.json else shown(proof), flush=True)
    unproved = uncaught(proofs)
    if not asked.json:
        print("", *matrix(proofs), sep="\n")
        print(f"\n{len(proofs)} planted faults, {sum(proof.cpu_s for proof in proofs):.1f} s of CPU")
    for name in unproved:
        print(f"no planted fault proves the checker {name}", file=sys.stderr)
    return 0 if all(proof.right for proof in proofs) and not unproved else 1


def main(arguments: list[str]) -> int:
    asked = parsed(arguments)
    gc.freeze()  # imported objects are not examined after each seed
    try:
        if asked.plant or asked.plants:
            return one_plant(asked) if asked.plant else all_plants(asked)
        if asked.speed:
            print(json.dumps(speeds()) if asked.json else shown_speeds(), flush=True)
            return 0
        return all_seeds(asked)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # as before `| head`: the rest of the output has no reader
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def all_seeds(asked: argparse.Namespace) -> int:
    report = Report(asked)
    try:
        for outcome in outcomes(asked):
            report.add(outcome)
    except KeyboardInterrupt:
        report.end()
        return INTERRUPTED
    return report.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
