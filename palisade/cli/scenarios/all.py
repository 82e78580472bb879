"""All scenarios, in the order in which they are listed and run."""

from __future__ import annotations

from palisade.cli.scenarios import activating, alone, catching_up, local_data, racing, refusing, serving_segments
from palisade.cli.scenarios.stage import Stage
from palisade.cli.scenarios.story import Scenario

SCENARIOS: tuple[Scenario[Stage], ...] = (
    *catching_up.SCENARIOS,
    *racing.SCENARIOS,
    *refusing.SCENARIOS,
    *alone.SCENARIOS,
    *local_data.SCENARIOS,
    *serving_segments.SCENARIOS,
    *activating.SCENARIOS,
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
