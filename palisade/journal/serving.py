"""Runs one copy as a process: its directory, its address, and the clients of the metadata store."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from palisade.base.address import Address
from palisade.base.clock import SystemClock
from palisade.base.log_rate_limit import LogLimit
from palisade.base.network_reason import reason_of
from palisade.base.port_probe import PortUnavailable, check_free
from palisade.base.wrong_port import ClientProtocol, advice, protocol_of, refusal
from palisade.client.activation import RoleStore
from palisade.journal.agreed import RoleRecord
from palisade.journal.aside import AsideReport
from palisade.journal.channel import TcpChannel, TcpNetwork
from palisade.journal.copy_state import CopyOptions, CopyState
from palisade.journal.errors import PortUnusable
from palisade.journal.files import DiskFiles
from palisade.journal.role import RoleRunner
from palisade.journal.service import JournalService
from palisade.journal.store_trouble import Trouble, report

log = logging.getLogger(__name__)
CYCLES_SOUGHT_AFTER = 20_000
"""New container objects between two cycle collections."""


async def serve(
    store: RoleStore,
    options: CopyOptions,
    directory: Path,
    listen: str,
    metrics: str | None = None,
    trouble: Trouble = lambda: None,
) -> None:
    """Runs until SIGTERM or SIGINT; then releases the role, so that the other copy takes over at once.

    `metrics`: the address of its metrics. `trouble`: of the store, for the log.

    Raises JournalError, OSError of the disk."""
    gc.set_threshold(CYCLES_SOUGHT_AFTER)
    check_ports(options.role, listen, metrics)
    files = DiskFiles(directory)
    try:
        copy = CopyState(files, options, on_aside=lambda report: log_aside(report, directory))
        clock = SystemClock().now
        record = RoleRecord(store, options.role, options.own, options.ttl_s, clock)
        runner = RoleRunner(copy, record, TcpNetwork())
        await copy.load()
        if copy.log.removed_bytes:
            log.warning("torn end removed: bytes=%d last=%d", copy.log.removed_bytes, copy.log.end.last)
        async with AsyncExitStack() as stack:
            if metrics is not None:
                from palisade.journal.metrics_server import served_metrics

                await stack.enter_async_context(served_metrics(runner, files.sync_times, Address.parse(metrics)))
            await _serve(runner, Address.parse(listen), trouble)
    finally:
        files.close()


def check_ports(role: str, listen: str, metrics: str | None) -> None:
    """Before the directory is made, so that a refused start leaves nothing. Raises PortUnusable."""
    if listen == metrics:
        raise PortUnusable(f"--listen and --metrics are both {listen}: give another --metrics")
    for option, given in (("--listen", listen), ("--metrics", metrics)):
        if given is not None:
            try:
                check_free(Address.parse(given), f"{option} of {role}", f"give another {option}")
            except PortUnavailable as error:
                raise PortUnusable(str(error)) from None


def log_aside(report: AsideReport, directory: Path) -> None:
    log.warning(
        "stale entries moved aside: first=%d last=%d file=%s sequence=%d agreed=%d",
        report.first, report.last, directory / report.file, report.sequence, report.agreed_sequence,
    )  # fmt: skip


async def _serve(runner: RoleRunner, at: Address, trouble: Trouble) -> None:
    service, connections = JournalService(runner), set[asyncio.Task[None]]()

    loop, lines = asyncio.get_running_loop(), LogLimit()

    def misdirected(first: bytes) -> bytes | None:
        what = protocol_of(first)
        if what is None or what is ClientProtocol.JOURNAL:
            return None
        text = advice(what, "journal", {})
        line = lines.admit(f"refused a client: {text}", loop.time())
        if line is not None:
            log.warning("%s", line)
        return refusal(what, text)

    def connected(channel: TcpChannel) -> None:
        task = loop.create_task(service.serve(channel))
        connections.add(task)
        task.add_done_callback(connections.discard)

    try:
        server = await loop.create_server(lambda: TcpChannel(connected, misdirected), at.host, at.port)
    except OSError as error:
        raise PortUnusable(f"can't listen on {at}: {reason_of(error)}; free it, or give another --listen") from error
    running, stopped = asyncio.ensure_future(runner.run()), asyncio.Event()
    stopping = asyncio.ensure_future(stopped.wait())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    options = runner.copy.options
    reporting = asyncio.ensure_future(report(options.role, trouble))
    log.info(
        "listening: role=%s name=%s address=%s advertised=%s", options.role, options.own.name, at, options.own.address
    )
    try:
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        for task in (running, stopping, reporting):
            task.cancel()
        await asyncio.gather(running, stopping, reporting, return_exceptions=True)
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
