"""palisade segments: the assignment of segments to nodes, and the copies on each node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from palisade.base.counted import agreeing, counted
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.catalog.segment import REPLICAS_MAX
from palisade.cli.node_requests import ask_each, no_answer_from
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import NAME, client_options
from palisade.cli.request_progress import RequestProgress
from palisade.cli.session import REFUSED, UNAVAILABLE, CliSession, Failure
from palisade.client.node_addresses import addresses_in

if TYPE_CHECKING:
    from palisade.segments.assigning import Assigned

TIMEOUT_S = 3.0
HAS_COPIES = "segments are assigned to it as before"
REMARK_S = 0.5
"""How long a node is waited for whose answer is only needed for a remark."""
SHOWN = 3
"""How many segments a remark names."""
HAS_NONE = "it had no segments and was given none; repeat the command when it answers"


@click.group()
def segments() -> None:
    """Segments of data and their copies on nodes.

    Nodes that run with --segments store copies.
    A segment past the TTL rule of demo.SOURCE, or else of demo (palisade catalog set-ttl), is removed; it is fetched
    again when the rule is removed.
    """


@segments.command("assign")
@click.option("--replicas", type=WholeNumber(0, REPLICAS_MAX), help="Set this replication factor first; 0: no copies.")
@click.option("--prefix", default="", help="Only segments whose names begin with TEXT, such as flights/2013-01.")
@click.option(
    "--nodes",
    type=NAME,
    metavar="NAME,...",
    help="The nodes that store copies.  [default: all that run with --segments]",
)
@click.option("--force", is_flag=True, help="With --nodes: accept nodes that are unknown or store no segments.")
@client_options
def assign(session: CliSession, replicas: int | None, prefix: str, nodes: str | None, force: bool) -> None:
    """Assign the used segments to nodes.

    Each segment is assigned to as many nodes as its replication factor, or to all nodes if they are fewer.
    The same nodes and segments always give the same assignment; adding or removing a node moves only the copies of
    that node. Repeat the command when nodes or segments have changed: only differences are written.

    Without --nodes, a node that does not answer keeps its segments until it leaves the logical topology, after about
    4 s in a cluster of three. From then on, the command assigns them to the other nodes. It names the node in both
    cases.

    A node in --nodes must be in the topology (palisade topology). It may be stopped; if it runs, it must run with
    --segments.
    """
    from palisade.segments.assigning import assign_segments
    from palisade.wire.segment_errors import SegmentError

    known: Mapping[str, bool] = {}

    unanswered = set[str]()

    async def run(client: Any) -> Assigned:
        nonlocal known
        silent: dict[str, str] = {}
        progress = RequestProgress("assign", lambda: client.trouble or no_answer_from(silent))
        async with session.shown_progress(progress):
            progress.begin("asking which nodes store segments")
            if nodes is None:
                known = await keepers(client, session.deadline_s, silent, unanswered)
                chosen = [name for name, keeps in known.items() if keeps]
            else:
                chosen = named(nodes)
                if not force:
                    await check_keepers(client, chosen, session.deadline_s, silent)
            progress.begin("reading the segments")
            return await assign_segments(client, chosen, replicas, prefix, progress.count)

    try:
        done = session.call(run, notice=False)
    except SegmentError as error:
        code = UNAVAILABLE if error.retry else REFUSED
        session.fail(Failure(code, "not-assigned", str(error), error.retry))
    copies = f"{counted(done.assignments, 'copy')} on {counted(len(done.nodes), 'node')}"
    text = f"{counted(done.segments, 'segment')}, {copies}; {done.written} changed"
    session.answer({**done.as_dict(), "unanswered": sorted(unanswered)}, text)
    if not done.nodes:
        session.note("no node stores segments: start nodes with --segments, and repeat the command")
    for name in sorted(unanswered):
        session.note(f"{name} does not answer: {HAS_COPIES if known[name] else HAS_NONE}")
    for name in done.left_out:
        session.note(f"{name} is no longer assigned any of these segments: {why_left_out(name, nodes, known)}")
    if done.short:
        session.note(too_few_nodes(done.short, done.nodes))


@segments.command("nodes")
@client_options
def nodes_(session: CliSession) -> None:
    """Show assigned, local and missing segments per node.

    The column why has the reason if copies are missing, or shows that the node is loading them.
    Expired: past their TTL and not local. Trashed: past their TTL and still in the trash folder of the node.
    """
    from palisade.segments.assigning import assigned_by_node
    from palisade.segments.names import ASSIGNMENTS
    from palisade.segments.view import HEADER, node_summary, summary_row

    silent: dict[str, str] = {}

    async def ask(client: Any) -> list[dict[str, Any]]:
        assigned = assigned_by_node(await client.range(ASSIGNMENTS, prefix=True))
        topology = await client.topology()
        addresses, down = addresses_in(topology), {row["id"] for row in topology["physical"] if row["state"] == "dead"}
        found = await ask_all(addresses, session.deadline_s, silent)
        return [
            node_summary(name, len(assigned.get(name, {})), found.get(name))
            for name in sorted(assigned.keys() | addresses.keys() | down)
        ]

    rows = session.call(ask, why=lambda: no_answer_from(silent))
    cells = [summary_row(row, separators=not session.as_csv) for row in rows]
    session.rows({"nodes": rows}, HEADER, cells, wraps=["why"])


def named(text: str) -> list[str]:
    from palisade.base.errors import ConfigError
    from palisade.base.identifier import check_id

    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise click.BadParameter("--nodes: give at least one name")
    try:
        for name in names:
            check_id("--nodes", name)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    return names


def why_left_out(name: str, nodes: str | None, known: Mapping[str, bool]) -> str:
    """`nodes`: the option. `known`: the result of `keepers`."""
    if nodes is not None:
        return "it is not in --nodes"
    return "it runs without --segments" if name in known else "it is not in the topology: it is down, or has left"


def too_few_nodes(short: Sequence[tuple[str, int]], nodes: Sequence[str]) -> str:
    """`short`: segments with a replication factor above the number of `nodes`, and their factors."""
    first = ", ".join(f"{name} ({counted(replicas, 'replica')})" for name, replicas in short[:SHOWN])
    more = f" and {len(short) - SHOWN} more" if len(short) > SHOWN else ""
    return (
        f"{counted(len(short), 'segment')} {agreeing(len(short), 'has', 'have')} more replicas than there are nodes to "
        f"store them ({', '.join(nodes)}), and {agreeing(len(short), 'is', 'are')} assigned to all of these: "
        f"{first}{more}. Start more nodes with --segments and repeat the command, or reduce the replication factor "
        "with 'palisade segments set-replicas'"
    )


async def keepers(client: Any, deadline_s: float, silent: dict[str, str], unanswered: set[str]) -> dict[str, bool]:
    """The nodes of the logical topology, and whether they store segments. A node that does not answer counts as one
    that does if segments are assigned to it, so that a short outage moves no copies. `silent`: as in `ask_each`.
    `unanswered` gets the nodes that do not answer. Raises SegmentError if none answers."""
    from palisade.segments.assigning import assigned_by_node
    from palisade.segments.names import ASSIGNMENTS
    from palisade.wire.segment_errors import NotFetched

    assigned = assigned_by_node(await client.range(ASSIGNMENTS, prefix=True))
    found = await ask_all(addresses_in(await client.topology()), deadline_s, silent)
    unknown = sorted(name for name, each in found.items() if each is None)
    if unknown and len(unknown) == len(found):
        raise NotFetched(
            f"no answer from {', '.join(unknown)}, so it is not known which of the nodes store segments; nothing was "
            "assigned. Wait until they are back or out of the topology, or name the nodes with --nodes"
        )
    unanswered.update(unknown)
    return {name: name in assigned if each is None else bool(each["keeps"]) for name, each in sorted(found.items())}


async def too_few_keepers(client: Any, replicas: int, deadline_s: float) -> str | None:
    """The remark if fewer nodes than `replicas` store segments, as far as is known: a node that does not answer counts
    as one that does. None, too, if the cluster does not answer: a remark is no reason to fail, or to wait for long."""
    from palisade.base.errors import PalisadeError

    if replicas <= 1:
        return None
    try:
        async with asyncio.timeout(deadline_s):
            topology = await client.topology()
            found = await ask_all(addresses_in(topology), min(REMARK_S, deadline_s))
    except (PalisadeError, OSError):
        return None
    known = {row["id"] for view in ("physical", "logical") for row in topology[view]}
    names = sorted(name for name in known if (each := found.get(name)) is None or each["keeps"])
    if len(names) >= replicas:
        return None
    store = f"{counted(len(names), 'node')} {agreeing(len(names), 'stores', 'store')} segments"
    return (
        f"{counted(replicas, 'replica')}, but only {store} ({', '.join(names) or 'none'}): there are no more copies "
        "than that until more nodes are started with --segments and 'palisade segments assign' is repeated"
    )


async def check_keepers(client: Any, names: Sequence[str], deadline_s: float, silent: dict[str, str]) -> None:
    """Raises SegmentError for a name that is in neither topology, and for a node that runs without --segments. A node
    that does not answer is accepted: the operator may know that it returns."""
    from palisade.wire.segment_errors import SegmentError

    topology = await client.topology()
    known = {row["id"] for view in ("physical", "logical") for row in topology[view]}
    found = await ask_all(addresses_in(topology), deadline_s, silent)
    keep = ", ".join(sorted(name for name, each in found.items() if each is not None and each["keeps"])) or "none"
    remedy = f"nothing was assigned. Nodes that store segments: {keep}. To assign to others as well, give --force"
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SegmentError(f"--nodes: not in the topology: {', '.join(unknown)}; {remedy}")
    without = [name for name in names if (each := found.get(name)) is not None and not each["keeps"]]
    if without:
        raise SegmentError(f"--nodes: running without --segments: {', '.join(without)}; {remedy}")


async def ask_all(
    addresses: Mapping[str, str], deadline_s: float, silent: dict[str, str] | None = None
) -> dict[str, dict[str, Any] | None]:
    """The report of each node on its segments; None for a node that does not answer. `silent`: as in `ask_each`. Raises
    AuthorizationError."""
    return await ask_each(addresses, ask_one, min(TIMEOUT_S, deadline_s), silent)


async def ask_one(requests: HttpRequests, address: str) -> dict[str, Any] | None:
    from palisade.wire.error_codes import error_of

    try:
        answer = await requests.json(address, "/v1/segments/copies", params={"limit": 1})
    except NoAnswer:
        return None
    found = answer.content
    if answer.status in (401, 403) and isinstance(found, dict) and "code" in found:
        raise error_of(str(found["code"]), str(answer.detail))
    return found if answer.status < 400 and isinstance(found, dict) and "keeps" in found else None
