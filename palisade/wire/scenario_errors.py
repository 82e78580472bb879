"""Reasons why a scenario is not started over HTTP. One tree; nothing was started."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class ScenarioError(PalisadeError):
    """Root. `retry`: the same request may succeed later."""

    retry = False


class NoSuchScenario(ScenarioError):
    """No scenario has that name; the text lists the existing ones."""

    code = "no-such-scenario"


class ScenarioRuns(ScenarioError):
    """Another scenario is running; a node runs one at a time."""

    code = "scenario-runs"
    retry = True


class ScenariosOff(ScenarioError):
    """Scenarios are off: this node listens beyond loopback and was not configured to run them."""

    code = "scenarios-off"
