"""Every scenario there is, in the order in which they are listed and run."""

from __future__ import annotations

from node.scenarios import alone, catching_up, local_data, racing, refusing
from node.scenarios.stage import Stage
from node.scenarios.story import Scenario

SCENARIOS: tuple[Scenario[Stage], ...] = (
    *catching_up.SCENARIOS,
    *racing.SCENARIOS,
    *refusing.SCENARIOS,
    *alone.SCENARIOS,
    *local_data.SCENARIOS,
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
