"""`palisade up`: folder, ports, processes, readiness, first user, demo catalog, in this order; a signal stops all."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from palisade.base.counted import counted
from palisade.base.directory_lock import DirectoryLock
from palisade.base.errors import ConfigError, PalisadeError
from palisade.base.port_probe import PortUnavailable, check_free
from palisade.base.recurring_line import RecurringLine
from palisade.catalog.demo.flights import DataSetError
from palisade.cli.cluster_check import OtherCluster
from palisade.cli.node_command import check_arguments
from palisade.cli.output import OutputFailed, discard_output
from palisade.cli.supervisor.child import Child
from palisade.cli.supervisor.cluster import LocalCluster, children_of
from palisade.cli.supervisor.demo import ensure_demo, with_notices
from palisade.cli.supervisor.events import SupervisorEvent
from palisade.cli.supervisor.first_user import check_first_user
from palisade.cli.supervisor.screen import ClusterScreen
from palisade.cli.supervisor.status import LocalNodes
from palisade.cli.target import LAYOUT_FILE, LOCAL_FOLDER, VARIABLE
from palisade.cli.waiting import LINES_S, NOTICE_S
from palisade.metastore.errors import MetastoreError
from palisade.node.data_dir_marker import FolderError, Marker
from palisade.node.local_layout import BASE_PORT, NODES, Layout, check_same, layout_from_json
from palisade.raftgroup.errors import DataDirectoryError, RaftError
from palisade.wire.auth_errors import AuthorizationError, PermissionDenied, Unauthenticated
from palisade.wire.credentials import Credentials, Password, Token

LOCK = "LOCK"
READY_POLL_S = 0.1
LOGS_AFTER_S = 15.0
"""After this time, the notice about nodes that are not ready points to their logs; a cluster is ready in 3 s."""
STATUS_S = 1.0
FIRST_USER_S = 10.0
NO_CREDENTIALS = (
    "authorization is on, and there are no credentials of a user to create it with: set PALISADE_USER and "
    "PALISADE_PASSWORD_FILE, or PALISADE_TOKEN_FILE"
)
EXIT_STOPPED = 0
EXIT_KILLED = 130
WITHOUT_MAJORITY = (
    "Restore these folders. Without the folders of a majority, continue with one survivor: 'palisade recover-quorum "
    "--data-dir' with the folder 'data' of that node, then 'palisade up'"
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class UpRefused(PalisadeError):
    """The cluster was not started. The text has the reason and the remedy."""

    code = "up-refused"


@dataclass(frozen=True, slots=True)
class UpRequest:
    """None for `nodes` and `base_port`: those of the folder, else the defaults. All nodes get `node_options`."""

    data_dir: Path
    nodes: int | None = None
    base_port: int | None = None
    demo: bool = True
    node_options: list[str] = field(default_factory=list)
    credentials: Credentials | None = None
    """Credentials for loading the demo catalog, if authorization is on."""


async def up(request: UpRequest, screen: ClusterScreen) -> int:
    """Runs until a signal; returns the exit code. Raises UpRefused if the cluster cannot start."""
    with opened(request, screen) as (folder, layout):
        cluster = LocalCluster(layout, folder, screen.show, request.node_options)
        founded = is_majority(sum(child.has_data() for child in cluster.children), layout)
        stop = StopRequest(cluster, screen)
        async with stop.on_signals():
            try:
                cluster.start()
                async with LocalNodes(layout.members()) as nodes:
                    await _until_stopped(stop, _serve(request, layout, cluster, nodes, screen, founded))
            finally:
                await cluster.stop()
        screen.show(
            SupervisorEvent("stopped", "stopped; start again with the same --data-dir to continue with the same data")
        )
        return stop.exit_code


@contextlib.contextmanager
def opened(request: UpRequest, screen: ClusterScreen) -> Iterator[tuple[Path, Layout]]:
    """The locked folder and its layout, formatted if it is new; all its ports are free. Raises UpRefused.

    A refused start leaves a new folder as it was. The configuration of the nodes is checked here, by the check of
    `palisade node`, before anything is written. A node can still refuse for a reason that appears later, such as a port
    that another process has taken meanwhile: then the folder is removed if no node has created its storage
    (`remove_unfounded`)."""
    folder = request.data_dir.absolute()
    lock, made = None, [each for each in (folder / LOCK, folder, *folder.parents) if not each.exists()]
    try:
        marker = Marker(folder, LAYOUT_FILE)
        lock = DirectoryLock(folder, DataDirectoryError)
        is_new = marker.read() is None
        layout = settle_layout(marker, folder, request, screen)
    except (ConfigError, DataDirectoryError, FolderError, PortUnavailable) as error:
        if lock is not None:
            remove_made(made)
            lock.release()
        raise UpRefused(str(error)) from None
    try:
        yield folder, layout
    except UpRefused:
        if is_new:
            remove_unfounded(children_of(layout, folder, request.node_options), [folder / LAYOUT_FILE, *made])
        raise
    finally:
        lock.release()


def remove_made(made: list[Path]) -> None:
    """Removes the files `made` and those folders in it that are empty, while the lock is held."""
    with contextlib.suppress(OSError):
        for each in made:
            each.rmdir() if each.is_dir() else each.unlink(missing_ok=True)


def remove_unfounded(ended: list[Child], made: list[Path]) -> None:
    """Removes the folder of a new cluster if none of its nodes, which have ended, has created its storage: then there
    are only logs, whose last lines have been shown.

    Only files that this run has created are removed, and only empty folders: a new cluster begins in an empty folder.
    """
    if any(child.data_dir.exists() for child in ended):
        return
    for child in ended:
        remove_made([child.log_path, child.log_path.parent])
    if not any(child.log_path.parent.exists() for child in ended):
        remove_made(made)


def settle_layout(marker: Marker, folder: Path, request: UpRequest, screen: ClusterScreen) -> Layout:
    """The layout of the folder, or the requested one for a new folder; written only if all ports are free."""
    content = marker.read()
    if content is None:
        layout = new_layout(request)
    else:
        layout = layout_from_json(content)
        check_same(layout, request.nodes, request.base_port)
    for child in children_of(layout, folder, request.node_options):
        if check_arguments(child.options).standalone:
            raise ConfigError(
                "a standalone node belongs to no cluster; omit the option, or use 'palisade node'", option="standalone"
            )
    check_ports(layout, formatted=content is not None)
    if content is None:
        marker.write(layout.to_json())
    verb, name = ("new cluster", "formatted") if content is None else ("cluster", "opened")
    text = f"{verb} {layout.cluster} of {counted(layout.nodes, 'node')} in {folder}"
    screen.show(SupervisorEvent(name, text, {"data_dir": str(folder), **layout.to_json()}))
    return layout


def new_layout(request: UpRequest) -> Layout:
    """Every cluster gets a unique name, so that nodes of two clusters never accept each other as members."""
    return Layout(
        f"local-{secrets.token_hex(4)}",
        NODES if request.nodes is None else request.nodes,
        BASE_PORT if request.base_port is None else request.base_port,
    )


def check_ports(layout: Layout, *, formatted: bool) -> None:
    """Raises PortUnavailable for the first port in use. `formatted`: the cluster exists, and its ports are fixed."""
    remedy = f"give another --base-port (now {layout.base_port})"
    if formatted:
        remedy = (
            f"give the --data-dir of another cluster. This one keeps base port {layout.base_port}; to run a backup on "
            "other ports, restore it into a new folder with 'palisade restore --base-port'"
        )
    for member in layout.members():
        for purpose, address in (("HTTP", member.http), ("peer", member.peer), ("stream", member.stream)):
            if address is not None:
                check_free(address, f"{purpose} of {member.id}", remedy)
    for node, address in layout.swim().items():
        check_free(address, f"SWIM of {node}", remedy, udp=True)


class StopRequest:
    """The first signal stops the nodes in order, the second one kills them."""

    def __init__(self, cluster: LocalCluster, screen: ClusterScreen) -> None:
        self.asked = asyncio.Event()
        self.exit_code = EXIT_STOPPED
        self._cluster = cluster
        self._screen = screen

    @contextlib.asynccontextmanager
    async def on_signals(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self.asked.is_set():
            self.exit_code = EXIT_KILLED
            self._cluster.kill()
            return
        self.asked.set()
        text = f"{number.name}: stopping the nodes (a second signal kills them)"
        try:
            self._screen.show(SupervisorEvent("stopping", text, {"signal": number.name}))
        except BrokenPipeError:  # Ctrl-C has also ended the reader, as in 'palisade up | tee FILE'
            discard_output()
        except OutputFailed:
            pass  # the next event reports it


async def _until_stopped(stop: StopRequest, serving: Coroutine[None, None, None]) -> None:
    """Runs `serving` until a signal. Raises the errors of `serving`."""
    task = asyncio.create_task(serving)
    asked = asyncio.create_task(stop.asked.wait())
    try:
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
    finally:
        task.cancel()
        asked.cancel()
        await asyncio.gather(task, asked, return_exceptions=True)


async def _serve(
    request: UpRequest,
    layout: Layout,
    cluster: LocalCluster,
    nodes: LocalNodes,
    screen: ClusterScreen,
    founded: bool,
) -> None:
    ready = await _wait_ready(layout, cluster, nodes, screen, founded)
    _show_ready(request.data_dir, layout, ready, screen)
    await check_first_user(layout, screen.show)
    if request.demo:
        await _load_demo(layout, screen, request.credentials)
    while True:
        rows = await nodes.status()
        screen.status(rows)
        await asyncio.sleep(STATUS_S)


def reasons_of(refused: Mapping[str, str]) -> str:
    """`refused`: node -> reason. Nodes with the same reason share it."""
    nodes: dict[str, list[str]] = {}
    for node, reason in sorted(refused.items()):
        nodes.setdefault(reason, []).append(node)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in nodes.items())


def is_majority(nodes: int, layout: Layout) -> bool:
    return 2 * nodes > layout.nodes


async def _wait_ready(
    layout: Layout, cluster: LocalCluster, nodes: LocalNodes, screen: ClusterScreen, founded: bool
) -> list[str]:
    """Waits until every node is ready; returns the nodes that are. `founded`: a majority has data, so the cluster
    starts without a node that refuses to run, perhaps because its disk was lost: it can only be replaced while the
    others run.

    Raises UpRefused if too many refuse."""
    loop = asyncio.get_running_loop()
    members = {member.id: member for member in layout.members()}
    waiting, began = dict(members), loop.time()
    notice = RecurringLine(LINES_S, LOGS_AFTER_S, steady_s=10.0, counts=False)
    ready_once: set[str] = set()
    while waiting:
        if cluster.refused and not (founded and is_majority(layout.nodes - len(cluster.refused), layout)):
            text = f"a node refuses to run, so all of them were stopped: {reasons_of(cluster.refused)}"
            raise UpRefused(f"{text}. {WITHOUT_MAJORITY}" if cluster.lost else text)
        for node in (*cluster.removed, *cluster.refused):
            waiting.pop(node, None)
        for node, ready in (await nodes.ready()).items():
            if ready and (member := waiting.pop(node, None)) is not None:
                ready_once.add(node)
                fields = {"node": node, **member.addresses()}
                screen.show(SupervisorEvent("node-ready", f"{node} is ready: http://{member.http}", fields))
        waited_s = loop.time() - began
        if waiting and waited_s >= NOTICE_S:
            logs = "; see their logs" if waited_s >= LOGS_AFTER_S else ""
            line = notice.holds(f"waiting for {', '.join(waiting)}{logs}", waited_s)
            if line is not None:
                screen.show(SupervisorEvent("waiting", line, {"nodes": list(waiting)}))
        await asyncio.sleep(READY_POLL_S if waiting else 0)
    return [node for node in members if node in ready_once and node not in cluster.refused | cluster.removed]


def _show_ready(data_dir: Path, layout: Layout, ready: list[str], screen: ClusterScreen) -> None:
    members = [member for member in layout.members() if member.id in ready]
    others = [member.id for member in layout.members() if member.id not in ready]
    urls, endpoints = [f"http://{member.http}" for member in members], [str(member.stream) for member in members]
    without = f"without {', '.join(others)}, see above; " if others else ""
    text = f"ready: {'  '.join(urls)}   ({without}Ctrl-C stops the cluster)\n{how_to_reach(data_dir, endpoints)}"
    screen.show(SupervisorEvent("ready", text, {"urls": urls, "endpoints": endpoints, "not_ready": others}))


def how_to_reach(data_dir: Path, endpoints: list[str]) -> str:
    """The line to paste where commands do not find the cluster automatically (`palisade/cli/target.py`)."""
    found = data_dir.absolute() == (Path() / LOCAL_FOLDER).absolute()
    where = "commands in this folder find the cluster; elsewhere" if found else "for commands and programs"
    return f"{where}:\nexport {VARIABLE}={','.join(endpoints)}"


async def _signed_in(load: Callable[[], Coroutine[Any, Any, Any]], patience_s: float) -> None:
    """Runs `load`; in a new cluster the first user may be created a moment later."""
    until = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            await load()
            return
        except Unauthenticated:
            if asyncio.get_running_loop().time() >= until:
                raise
        await asyncio.sleep(STATUS_S)


async def _load_demo(layout: Layout, screen: ClusterScreen, shown: Credentials | None) -> None:
    """If the demo catalog cannot be loaded, a message is printed, and the cluster runs without it."""
    try:
        endpoints = [str(member.stream) for member in layout.members()]
        load = partial(with_notices, screen.show, lambda emit: ensure_demo(endpoints, emit, shown))
        await _signed_in(load, FIRST_USER_S if shown else 0.0)
    except (DataSetError, MetastoreError, RaftError, AuthorizationError, OtherCluster, OSError) as error:
        denied = isinstance(error, PermissionDenied | Unauthenticated)
        if denied and not isinstance(shown, Password | Token):
            reason = NO_CREDENTIALS
            text = f"the demo catalog is not loaded: {reason}; the next start with them loads it"
        else:
            reason = str(error)
            text = f"the demo catalog is not complete: {reason}; the next start continues with it"
        screen.show(SupervisorEvent("demo-failed", text, {"reason": reason}))
