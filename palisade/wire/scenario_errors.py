"""Why a scenario is not started over HTTP. One tree; nothing was started."""

from __future__ import annotations

from palisade.base.errors import PalisadeError


class ScenarioError(PalisadeError):
    """Root. `retry`: the same request may succeed later."""

    retry = False


class NoSuchScenario(ScenarioError):
    """There is none of that name; the text has those that there are."""

    code = "no-such-scenario"


class ScenarioRuns(ScenarioError):
    """One is under way, and one at a time is all that a node plays."""

    code = "scenario-runs"
    retry = True


class ScenariosOff(ScenarioError):
    """This node plays none for strangers: it listens beyond loopback, and was not told to."""

    code = "scenarios-off"
