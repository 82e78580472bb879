"""Case d and related ones: a node must not start with certain data. It reports the reason and keeps the data."""

from __future__ import annotations

import shutil

from palisade.cli.scenarios.actor import Actor
from palisade.cli.scenarios.catching_up import UNDISTURBED, a_follower
from palisade.cli.scenarios.edits import AIRPORTS, below, corrected
from palisade.cli.scenarios.members import Members
from palisade.cli.scenarios.stage import DidNotHold, Stage
from palisade.cli.scenarios.story import Report, Scenario

REFUSED = 2
STOPS = "the node stops with exit code 2, and its last line names the remedy"
KEPT = "its vault is unchanged: LV, chain digest and bucket digests"
MUST = {"stops": STOPS, "kept": KEPT, "undisturbed": UNDISTURBED}


async def refused(stage: Stage, node: Actor, cluster: Members) -> Report | None:
    """Starts the node and checks everything in MUST."""
    before = node.vault_digest()
    await node.start()
    (code,) = await stage.all_end([node])
    said = node.last_line()
    stage.say(f"{node.name} has ended with exit code {code}")
    stage.check("stops", code == REFUSED and "What to do:" in said, f"exit code {code}")
    stage.check("kept", node.vault_digest() == before, f"LV {before['revision']}")
    stage.check("undisturbed", *await cluster.undisturbed())
    return node.report()


async def ahead(stage: Stage) -> Report | None:
    cluster = await stage.cluster(1)
    node, latest = await put_back_behind(stage, cluster)
    stage.say(f"f1 starts; its LV is {latest}, LM is {await cluster.latest()}: LM < LV")
    return await refused(stage, node, cluster)


async def diverged(stage: Stage) -> Report | None:
    cluster = await stage.cluster(1)
    node, latest = await put_back_behind(stage, cluster)
    other = corrected(below(stage.entries, AIRPORTS), 60, wave=9)
    now = await cluster.load(other)
    stage.say(f"other rows are written; LM is {now}, and revision {latest} differs from that of f1; f1 starts")
    return await refused(stage, node, cluster)


async def put_back_behind(stage: Stage, cluster: Members) -> tuple[Actor, int]:
    """A follower with later revisions than the members have; returns it and its LV."""
    await cluster.kill()
    cluster.copy_folders()
    await cluster.start()
    stage.say("the folders of all members are copied while they are paused")
    node = cluster.follower("f1")
    latest = await cluster.load(corrected(below(stage.entries, AIRPORTS), 40))
    await node.start()
    await stage.caught_up(node, latest)
    await node.stop()
    stage.say(f"40 airports are corrected; f1 follows to LV {latest} and is stopped")
    await cluster.kill()
    cluster.put_back()
    await cluster.start()
    stage.say("the members are killed, and started again from the copies: later acknowledged writes are lost")
    return node, latest


async def foreign(stage: Stage) -> Report | None:
    cluster = await stage.cluster()
    other = await stage.cluster(1, "other")
    await stage.caught_up(other["n1"], await other.latest())
    node = cluster["n1"]
    await node.stop()
    await other.stop()
    give_vault(other["n1"], node)
    stage.say("n1 is stopped, and gets the vault of n1 of the other cluster instead of its own")
    return await refused(stage, node, cluster)


async def foreign_node(stage: Stage) -> Report | None:
    cluster = await stage.cluster()
    first, second = await a_follower(stage, cluster, "f1"), await a_follower(stage, cluster, "f2")
    give_vault(second, first)
    stage.say("f1 gets the vault of f2 instead of its own")
    return await refused(stage, first, cluster)


def give_vault(giver: Actor, taker: Actor) -> None:
    shutil.rmtree(taker.data_dir / "vault")
    shutil.copytree(giver.data_dir / "vault", taker.data_dir / "vault")


async def older_history(stage: Stage) -> Report | None:
    cluster = await stage.cluster()
    file = stage.folder / "monday.backup"
    await stage.command("backup", str(file), "--endpoints", ",".join(cluster.streams))
    latest = await cluster.load(corrected(below(stage.entries, AIRPORTS), 40))
    node = await a_follower(stage, cluster)
    stage.say(f"a backup is made, 40 airports are corrected, f1 has the changes: LV {latest}")
    await cluster.kill()
    for actor in cluster.actors:
        shutil.rmtree(actor.data_dir)
        await stage.command("restore", str(file), "--data-dir", str(actor.data_dir), "--id", actor.name)
    await cluster.start()
    now = await cluster.load(corrected(below(stage.entries, AIRPORTS), 60, wave=9))
    stage.say(f"the members are restored from the backup, a new generation; LM is {now}; f1 starts")
    report = await refused(stage, node, cluster)
    if report is None:
        raise DidNotHold("f1 has left no report of its recovery")
    return report


SCENARIOS = (
    Scenario(
        "refuse-ahead",
        "the cluster has lost revisions that a node has: all members were reset to older copies",
        "seed 001, case d; R7",
        ahead,
        MUST,
        "d",
        ("ahead",),
    ),
    Scenario(
        "refuse-foreign",
        "a member has the vault of another cluster",
        "R7; vault of another cluster",
        foreign,
        MUST,
        "d",
        ("foreign-cluster",),
    ),
    Scenario(
        "refuse-swapped",
        "a node has the vault of another node of its cluster",
        "R7; issue 3: a vault swapped between nodes",
        foreign_node,
        MUST,
        "d",
        ("foreign-node",),
    ),
    Scenario(
        "refuse-diverged",
        "the cluster has other content at the revision of a node's vault",
        "R7; same LV, different digest",
        diverged,
        MUST,
        "d",
        ("diverged",),
    ),
    Scenario(
        "refuse-older-history",
        "the cluster was restored from a backup; a node still has later revisions",
        "R7; issue 3: restoring raises the generation, so that old vaults are refused",
        older_history,
        MUST,
        "d",
        ("older-history",),
    ),
)
