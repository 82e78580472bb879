"""palisade scenario list, run: recovery demonstrated with real processes, one case at a time (R12)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from palisade.base.counted import agreeing, counted
from palisade.cli.daemon_thread import in_daemon_thread
from palisade.cli.options import output_options
from palisade.cli.printing import print_json
from palisade.cli.session import INTERRUPTED, REFUSED, UNAVAILABLE, USAGE, CliSession, Failure
from palisade.cli.waiting import CLEAR_BELOW, NOTICE_S

if TYPE_CHECKING:
    from palisade.cli.scenarios.stage import Stage
    from palisade.cli.scenarios.story import Scenario, ScenarioEvent, ScenarioOutcome

INDENT = {"scenario": "", "step": "  - ", "check": "    ", "report": "  recovery: ", "end": ""}


@click.group()
def scenario() -> None:
    """Demonstrate recovery in small clusters.

    Each scenario starts a cluster of its own and causes one recovery case.
    Running clusters are not affected. All files are in a temporary folder, which is removed afterwards.
    """


@scenario.command("list")
@output_options
def list_scenarios(session: CliSession) -> None:
    """List the scenarios with their recovery cases.

    The output of --json includes the checks.
    """
    from palisade.cli.scenarios.all import SCENARIOS

    shape = {"scenarios": [one.as_dict() for one in SCENARIOS]}
    rows = [(one.name, one.case or "-", one.title) for one in SCENARIOS]
    session.rows(shape, ("scenario", "case", "what it shows"), rows, wraps=["what it shows"])


@scenario.command("run")
@click.argument("names", nargs=-1)
@click.option("--all", "run_all", is_flag=True, help="Run all scenarios, one after the other.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per scenario at its end.")
@click.option("--events", is_flag=True, help="Print one JSON object per step, check and report at once.")
@click.option("--keep", is_flag=True, help="Keep the folder of each scenario with the logs of its nodes.")
@click.option("--parent-pipe", type=int, hidden=True, help="End when the other end of this file descriptor is closed.")
def run(names: Sequence[str], run_all: bool, as_json: bool, events: bool, keep: bool, parent_pipe: int | None) -> None:
    """Run the scenarios NAMES. Exit code 1 if a check does not hold."""
    session, printer = CliSession([], 0.0, as_json or events), EventPrinter(as_json, events)
    chosen = choose(session, names, run_all)
    if parent_pipe is not None:
        from palisade.node.parent_pipe import watch_parent

        watch_parent(parent_pipe)
    try:
        held = asyncio.run(shown(session, chosen, printer, keep))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(INTERRUPTED)
    sys.exit(0 if held else REFUSED)


def choose(session: CliSession, names: Sequence[str], run_all: bool) -> list[Scenario[Stage]]:
    from palisade.cli.scenarios.all import BY_NAME, SCENARIOS

    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        known = ", ".join(BY_NAME)
        session.fail(Failure(USAGE, "no-such-scenario", f"there is no scenario {unknown[0]}; there are {known}", False))
    if bool(names) == run_all:
        raise click.UsageError("name the scenarios to run, or give --all; 'palisade scenario list' shows them")
    return list(SCENARIOS) if run_all else [BY_NAME[name] for name in names]


async def shown(session: CliSession, chosen: Sequence[Scenario[Stage]], printer: EventPrinter, keep: bool) -> bool:
    """`play`, with a line on stderr during a long step."""
    async with session.notice(printer.waits_for):
        return await play(session, chosen, printer, keep)


async def play(session: CliSession, chosen: Sequence[Scenario[Stage]], printer: EventPrinter, keep: bool) -> bool:
    """Returns whether all scenarios hold. SIGTERM, like Ctrl-C, ends it after a complete cleanup."""
    from palisade.catalog.demo.flights import DataSetError
    from palisade.cli.scenarios.runner import run as run_scenario
    from palisade.client.bulk_load import read_demo
    from palisade.node.options import OPTIONS

    for option in OPTIONS:
        os.environ.pop(option.variable, None)  # set for other nodes, not for those of the scenarios
    stop_at_signals(session, printer)
    try:
        entries = (await in_daemon_thread(read_demo)).entries
    except DataSetError as error:
        session.fail(Failure(UNAVAILABLE, "no-demo-data", str(error), False))
    outcomes = []
    for one in chosen:
        outcomes.append(await run_scenario(one, entries, printer.show, keep=keep))
        printer.ended(outcomes[-1])
    if len(outcomes) > 1:
        printer.summed_up(outcomes)
    return all(outcome.held for outcome in outcomes)


def stop_at_signals(session: CliSession, printer: EventPrinter) -> None:
    """Ctrl-C and SIGTERM cancel the current task; a second Ctrl-C does not wait for its cleanup."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        if sys.stderr.isatty():
            print(CLEAR_BELOW, end="", file=sys.stderr, flush=True)
        printer.stopping = True
        session.note("stopping: the processes of the scenario are ended and its files removed")
        if task is not None:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)


class EventPrinter:
    """Prints text at once; with `as_json` an object per scenario, with `events` an object per event."""

    def __init__(self, as_json: bool, events: bool) -> None:
        self._as_json = as_json
        self._events = events
        self.stopping = False
        self._what, self._shown_at = "the demo data are read", time.monotonic()
        self._has_news = False

    def waits_for(self) -> str | None:
        """The text for a step that takes long; None within a second after an event, and at least once."""
        has_news, self._has_news = self._has_news, False
        if self.stopping or has_news:
            return None
        return self._what if time.monotonic() - self._shown_at >= NOTICE_S else None

    def show(self, event: ScenarioEvent) -> None:
        if event.kind == "scenario":
            self._what = f"the next step of {event.fields['scenario']}"
        self._shown_at, self._has_news = time.monotonic(), True
        if sys.stderr.isatty():
            print(CLEAR_BELOW, end="", file=sys.stderr, flush=True)
        if self._events:
            print_json(event.as_dict())
        elif not self._as_json:
            print(f"{INDENT[event.kind]}{event.text}", flush=True)

    def ended(self, outcome: ScenarioOutcome) -> None:
        if self._as_json and not self._events:
            print_json(outcome.as_dict())
        elif not self._events:
            print()

    def summed_up(self, outcomes: Sequence[ScenarioOutcome]) -> None:
        if not (self._as_json or self._events):
            missed = [outcome.scenario.name for outcome in outcomes if not outcome.held]
            seconds = sum(outcome.seconds for outcome in outcomes)
            said = f"these do not: {', '.join(missed)}" if missed else "all of them"
            hold = f"{counted(len(outcomes), 'scenario')} {agreeing(len(outcomes), 'holds', 'hold')}"
            print(f"{len(outcomes) - len(missed)} of {hold} ({seconds:.0f} s): {said}")
