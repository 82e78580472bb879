"""How fast simulated time passes: simulated seconds for each second of CPU, of three members without faults.

Of CPU and not of wall time, since others may use the machine. Idle, at the polling intervals of most seeds
(`ambient.PACES`) and at those of production; and with all the clients of a seed. The checkers run in each. The figures
that a run prints at its end include clients, faults and followers.
"""

from __future__ import annotations

import time

from tests.sim.ambient import PRODUCTION_PACES_EVERY, ambient
from tests.sim.run import BEGIN_S, CHECKERS
from tests.sim.workload import Workload
from tests.sim.world import Settings, World

MEASURED_S = 60.0


def speed(*, with_clients: bool, seed: int = 1, measured_s: float = MEASURED_S) -> float:
    world = World(seed, Settings(followers=0))
    with ambient(seed, lambda: world.now):
        try:
            world.checkers = [make(world) for make in CHECKERS]
            world.start()
            world.simulation.run_until(world.all_serve, within_s=BEGIN_S)
            if with_clients:
                workload = Workload(world)
                world.simulation.run(workload.clients[0].process, workload.prepare(), within_s=BEGIN_S)
                workload.start()
            began = time.process_time()
            world.simulation.run_for(measured_s)
            return measured_s / (time.process_time() - began)
        finally:
            world.close()


def speeds() -> dict[str, float]:
    found = {
        "idle": speed(with_clients=False),
        "idle_at_production_paces": speed(with_clients=False, seed=PRODUCTION_PACES_EVERY),
        "with_clients": speed(with_clients=True),
    }
    return {name: round(value, 1) for name, value in found.items()}


def shown_speeds() -> str:
    found = speeds()
    return (
        f"three members without faults, simulated seconds for each second of CPU: {found['idle']:.0f} where they are "
        f"idle ({found['idle_at_production_paces']:.0f} at the paces of production), {found['with_clients']:.0f} with "
        "the clients of a seed"
    )
