"""Runs one scenario in this process, and prints its report as one line of JSON. Its progress goes to stderr.

python -m tests.faults.play responses_lost --seed 7 [--network loopback] [--plant lease_from_receipt]

`violations`: found by a checker. `failed`: any other wrong or late result. The exit code is 0 without either.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from tests.faults.ground import Ground
from tests.faults.network import network_of
from tests.faults.scenarios import HOSTS, SCENARIOS
from tests.support.planted_fence import FAULTS
from tests.support.preloaded import fork_server


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.play", description=__doc__)
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long one that can go on does so")
    parser.add_argument("--times", type=int, default=1, help="how often one that counts does what it does")
    parser.add_argument("--network", choices=("auto", "namespaces", "loopback"), default="auto")
    parser.add_argument("--plant", choices=sorted(FAULTS))
    parser.add_argument("--folder", type=Path, help="for its files; a new one if not given")
    return parser.parse_args()


async def played(ground: Ground, scenario: str) -> str | None:
    """The failure."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await SCENARIOS[scenario](ground)
    except asyncio.CancelledError:
        return "interrupted"
    except AssertionError as error:
        return str(error) or traceback.format_exc()
    except Exception:
        return traceback.format_exc()
    return None


def main() -> int:
    given = arguments()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="palisade-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    network = network_of(given.network, HOSTS, given.seed)
    fork_server()
    ground = Ground(network, folder, given.seed, given.seconds, times=given.times, plant=given.plant)
    try:
        failed = asyncio.run(played(ground, given.scenario))
    finally:
        ground.close()
    ground.check_logs()
    report: dict[str, Any] = {
        "scenario": given.scenario,
        "seed": given.seed,
        "violations": ground.violations,
        "failed": failed,
    }
    report |= ground.seen | {"plant": given.plant, "folder": str(folder), "log": ground.log}
    print(json.dumps(report), flush=True)
    return 0 if failed is None and not ground.violations else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
