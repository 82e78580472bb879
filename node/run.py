"""Runs a node as a process: logging, signals, and the kind of node that its configuration selects."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from palisade.api.http.scenario_host import Playable
from palisade.base.file_limit import raise_file_limit
from palisade.node.config import NodeConfig
from palisade.node.follower import FollowerNode
from palisade.node.json_log import JsonFormatter
from palisade.node.member import Node
from palisade.node.standalone import StandaloneNode
from palisade.node.uninitialized import UninitializedNode, config_of

log = logging.getLogger(__name__)

CYCLES_SOUGHT_AFTER = 20_000
"""Number of new container objects between cycle collections. A thousand pending requests allocate a few thousand, which
are freed without the collector; with the interpreter's default of 700 every batch would be searched several times."""


class Runnable(Protocol):
    """`start`, then `wait` until it fails or is cancelled, then `stop`, which is safe in any state."""

    async def start(self) -> None: ...
    async def wait(self) -> None: ...
    async def stop(self) -> None: ...


def make_node(config: NodeConfig, scenarios: Sequence[Playable] = ()) -> Runnable:
    """Opens the data folder. `scenarios`: those that the node runs on request. Raises the error that refuses the
    folder."""
    files_max = raise_file_limit()
    if config.standalone:
        return StandaloneNode(config)
    return FollowerNode(config, scenarios=scenarios) if config.follow else Node(config, files_max, scenarios=scenarios)


async def run_node(config: NodeConfig, make: Callable[[NodeConfig], Runnable] = make_node) -> None:
    """Run one node until SIGTERM or SIGINT. Raises the error that stopped it otherwise."""
    _log_to_stderr(config.log_level, config.log_format)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    settled = config_of(config)
    if settled is None:
        await _run(UninitializedNode(config), stopped)
        settled = config_of(config)
    if settled is not None and not stopped.is_set():
        await _run(make(settled), stopped)
    log.info("stopped: node=%s", config.id)


async def _run(node: Runnable, stopped: asyncio.Event) -> None:
    try:
        await node.start()
        gc.freeze()
        gc.set_threshold(CYCLES_SOUGHT_AFTER)
        await _first(node.wait(), stopped.wait())
    finally:
        await node.stop()


async def _first(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Until one of them ends; the others are cancelled. Raises its error."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for task in done:
        task.result()


def _log_to_stderr(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("pysyncobj").setLevel(logging.ERROR)
