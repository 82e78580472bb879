"""Cases a, b and c: a node returns after an absence; and a node whose disk was replaced."""

from __future__ import annotations

import shutil

from palisade.cli.scenarios.actor import Actor
from palisade.cli.scenarios.edits import AIRPORTS, PLANES, below, corrected, retired
from palisade.cli.scenarios.members import Members
from palisade.cli.scenarios.stage import Stage
from palisade.cli.scenarios.story import Report, Scenario, plain

MISSED = 300
EQUAL = "its vault and the cluster are equal at one revision: chain digest and all 4,096 bucket digests"
UNDISTURBED = "all members are ready afterwards and follow one leader"


async def a_follower(stage: Stage, cluster: Members, name: str = "f1") -> Actor:
    """A follower that has caught up and was then stopped."""
    node = cluster.follower(name)
    await node.start()
    report = await stage.caught_up(node, await cluster.latest())
    stage.say(f"{name} joins with an empty vault (case {report['case']}) and is stopped at LV {report['lv']}")
    await node.stop()
    return node


async def check_state(stage: Stage, node: Actor, cluster: Members) -> None:
    """Checks what must hold after every successful recovery: 'equal' and 'undisturbed'."""
    stage.check("equal", *await stage.same_state(node, cluster))
    stage.check("undisturbed", *await cluster.undisturbed())


async def join(stage: Stage) -> Report:
    cluster = await stage.cluster()
    node = await a_follower(stage, cluster)
    stage.say("nothing is written meanwhile; f1 starts again: LM = LV")
    await node.start()
    report = await stage.caught_up(node, await cluster.latest())
    moved = {name: report[name] for name in ("revisions_replayed", "snapshots", "bytes_fetched")}
    stage.check("nothing-moved", not any(moved.values()), moved)
    await check_state(stage, node, cluster)
    return report


async def replay(stage: Stage) -> Report:
    cluster = await stage.cluster()
    node = await a_follower(stage, cluster)
    node.plan = {"notified": str(stage.folder / "notified")}
    before = await cluster.latest()
    latest = await cluster.load(corrected(below(stage.entries, AIRPORTS), MISSED))
    stage.say(f"{latest - before} airports are corrected while f1 is away; f1 starts again: MM <= LV + 1")
    await node.start()
    report = await stage.caught_up(node, latest)
    stage.check("replayed", report["revisions_replayed"] == latest - before and not report["snapshots"])
    notified = [line["revision"] for line in node.notified(stage.folder / "notified")]
    stage.check("in-order", notified == list(range(before + 1, latest + 1)), f"{len(notified)} revisions were notified")
    await check_state(stage, node, cluster)
    return report


async def snapshot(stage: Stage) -> Report:
    cluster = await stage.cluster()
    node = await a_follower(stage, cluster)
    await cluster.load(corrected(below(stage.entries, AIRPORTS), MISSED))
    gone = retired(stage.entries, PLANES, 50)
    latest = await cluster.delete(gone)
    stage.say(f"{MISSED} airports are corrected, {len(gone)} planes are retired, all of it is compacted: MM > LV + 1")
    await cluster.compact(latest)
    await node.start()
    report = await stage.caught_up(node, latest)
    keys = report["keys"]
    stage.check(
        "difference", (keys["evicted"], keys["fetched"]) == (len(gone), MISSED) and report["snapshots"] == 1, keys
    )
    await check_state(stage, node, cluster)
    return report


async def wiped_disk(stage: Stage) -> Report:
    cluster = await stage.cluster()
    latest = await cluster.compact(await cluster.load(corrected(below(stage.entries, AIRPORTS), MISSED)))
    victim = cluster["n3"]
    await stage.caught_up(victim, latest)
    before = await incarnations(cluster, "n3")
    stage.say("n3 is killed and its folder removed; it starts with an empty one, and enters through n1 (--join)")
    await victim.kill()
    shutil.rmtree(victim.data_dir)
    at = victim.arguments.index("--initial-cluster")
    victim.arguments[at : at + 2] = ["--join", cluster["n1"].http]
    await victim.start()
    report = await stage.caught_up(victim, latest)
    after = await incarnations(cluster, "n3")
    stage.check(
        "new-incarnation",
        after != before and "" not in after,
        f"{incarnation_text(before)}; now {incarnation_text(after)}",
    )
    keys = report["keys"]
    stage.check(
        "from-nothing", report["lv_before"] == 0 and keys["kept"] == 0, f"LV was {report['lv_before']}; {plain(keys)}"
    )
    await check_state(stage, victim, cluster)
    return report


def incarnation_text(found: tuple[str, str]) -> str:
    return f"incarnation {found[0]} in the group, {found[1]} in the topology"


async def incarnations(cluster: Members, node: str) -> tuple[str, str]:
    """Its incarnation in the Raft group and in the logical topology, as n1 sees them; empty where it is not."""
    members = (await cluster["n1"].get("/v1/members")).get("members", [])
    rows = (await cluster["n1"].get("/v1/topology")).get("logical", [])
    in_group = [row["incarnation"] for row in members if row["id"] == node]
    in_topology = [row["incarnation"] for row in rows if row["id"] == node]
    return str(*in_group), str(*in_topology)


SCENARIOS = (
    Scenario(
        "join",
        "a node that missed nothing joins directly from its vault",
        "seed 001, case a; R3",
        join,
        {
            "nothing-moved": "no revision is replayed, no snapshot taken, no byte of data fetched",
            "equal": EQUAL,
            "undisturbed": UNDISTURBED,
        },
        "a",
    ),
    Scenario(
        "replay",
        "a node that missed revisions which are all retained replays them",
        "seed 001, case b; R4",
        replay,
        {
            "replayed": "exactly the missed revisions are replayed, and no snapshot is taken",
            "in-order": "its component gets every missed revision once, in order",
            "equal": EQUAL,
            "undisturbed": UNDISTURBED,
        },
        "b",
    ),
    Scenario(
        "snapshot",
        "a node that missed revisions which are compacted fetches what differs",
        "seed 001, case c; R5, R11; the system described in the seed never tested it",
        snapshot,
        {
            "difference": "exactly the changed keys are fetched and the deleted ones evicted, in one snapshot",
            "equal": EQUAL,
            "undisturbed": UNDISTURBED,
        },
        "c",
        ("the revisions after LV are compacted",),
    ),
    Scenario(
        "wiped-disk",
        "a member whose disk was replaced comes back from nothing, as a new incarnation",
        "M10, M11, R5, R9; RATIS-2523",
        wiped_disk,
        {
            "new-incarnation": "it has a new incarnation in the Raft group and in the logical topology",
            "from-nothing": "its vault begins at LV 0 and has nothing to keep",
            "equal": EQUAL,
            "undisturbed": UNDISTURBED,
        },
        "c",
        ("the revisions after LV are compacted",),
    ),
)
