"""A node returns while the cluster continues: compaction overtakes it, writers are faster than it, it is paused."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from palisade.cli.scenarios.actor import Actor
from palisade.cli.scenarios.catching_up import EQUAL, UNDISTURBED, a_follower, check_state
from palisade.cli.scenarios.edits import AIRPORTS, PLANES, below, corrected, retired
from palisade.cli.scenarios.members import Members
from palisade.cli.scenarios.stage import Stage
from palisade.cli.scenarios.story import Report, Scenario
from palisade.recovery.recovery import BATCH_REVISIONS
from palisade.recovery.vault_component import BATCHES_PER_COMMIT

COMPACTED = "the revisions after LV are compacted"
MISSED = BATCHES_PER_COMMIT * BATCH_REVISIONS + 1_000
"""More revisions than a replay fetches before it notifies its components of the first one."""
HOLDS_AT = 400
FASTER = 1.4
"""Number of writes for each revision that the node applies."""
TICK_S = 0.05
BURST = 200
"""A snapshot advances a node by many revisions at once; the writes do not follow such a step."""


async def overtaken(stage: Stage) -> Report:
    cluster = await stage.cluster()
    node = await a_follower(stage, cluster)
    go_on = stage.folder / "go-on"
    ledger = stage.folder / "notified"
    node.plan = {"holds_at": HOLDS_AT, "until": str(go_on), "pin_life_s": 0.1, "notified": str(ledger)}
    before = await cluster.latest()
    latest = await cluster.load(corrected(below(stage.entries, AIRPORTS), MISSED))
    stage.say(f"{MISSED} revisions while f1 is away; its component pauses at the {HOLDS_AT}th of them")
    await node.start()
    await stage.until(lambda: ledger.exists() and len(node.notified(ledger)) == HOLDS_AT - 1, "f1 replaying")
    await cluster.compact(latest)
    stage.say(f"the pin of f1 on MM has ended, and the cluster compacts up to {latest}; the component continues")
    go_on.touch()
    report = await stage.caught_up(node, latest)
    replayed = report["revisions_replayed"]
    stage.check("switched", report["first_case"] == "b" and 0 < replayed < MISSED, f"{replayed} were replayed before")
    notified = node.notified(ledger)
    singly = [line["revision"] for line in notified if line["revision"] <= before + replayed]
    rest = {key for line in notified if line["revision"] > before + replayed for key in line["keys"]}
    wanted = {entry.key.decode() for entry in corrected(below(stage.entries, AIRPORTS), MISSED)[replayed:]}
    in_order = singly == list(range(before + 1, before + replayed + 1))
    stage.check("none-skipped", in_order and rest == wanted, f"{len(singly)} revisions, then {len(rest)} keys")
    await check_state(stage, node, cluster)
    return report


async def busy_writes(stage: Stage) -> Report:
    cluster = await stage.cluster()
    node = await a_follower(stage, cluster)
    node.plan = {"listener_ms": 1.0}
    await cluster.load(corrected(below(stage.entries, AIRPORTS), 600))
    stage.say(f"f1 starts with a slow component, and {FASTER} revisions are written for each that it takes")
    await node.start()
    async with writer(cluster, node, stage) as writes:
        report = await stage.caught_up(node, 1)
        stage.check("ends", report["outcome"] == "done" and not writes.done(), f"after {report['seconds']:.1f} s")
    behind = report["lm"] - report["lv"]
    stage.check("close", behind <= report["difference"], f"LM - LV is {behind}, {report['difference']} is acceptable")
    stage.say("the writes end; f1 follows up to the last of them")
    await stage.caught_up(node, await cluster.latest())
    await check_state(stage, node, cluster)
    return report


@asynccontextmanager
async def writer(cluster: Members, node: Actor, stage: Stage) -> AsyncIterator[asyncio.Task[None]]:
    """Writes faster than the node applies revisions, until the end of the block."""
    airports = below(stage.entries, AIRPORTS)

    async def write() -> None:
        taken = 0
        for wave in count(2):
            now = int((await node.status()).get("revision", 0))
            some = FASTER * (now - taken) if taken else 0
            taken = now
            await cluster.load(corrected(airports, int(min(some, BURST)) + 10, wave))
            await asyncio.sleep(TICK_S)

    task = asyncio.create_task(write())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def paused(stage: Stage) -> Report:
    cluster = await stage.cluster()
    node = cluster.follower("f1")
    node.plan = {"notified": str(stage.folder / "notified")}
    await node.start()
    before = await cluster.latest()
    await stage.caught_up(node, before)
    stage.say(f"f1 runs and follows, at LV {before}; SIGSTOP")
    node.send(signal.SIGSTOP)
    changed = corrected(below(stage.entries, AIRPORTS), 300)
    await cluster.load(changed[:1])  # the response to the outstanding request of f1
    await cluster.load(changed[1:])
    gone = retired(stage.entries, PLANES, 50)
    latest = await cluster.compact(await cluster.delete(gone))
    stage.say(f"300 airports are corrected, {len(gone)} planes are retired, all of it is compacted; SIGCONT")
    pid = node.pid
    node.send(signal.SIGCONT)
    await stage.until(lambda: recovered_again(node), "f1 recovering again")
    report = await stage.caught_up(node, latest)
    stage.check("goes-on", node.pid == pid, f"process {pid}")
    later = [line for line in node.notified(stage.folder / "notified") if line["revision"] > before]
    notified = {key for line in later for key in line["keys"]}
    wanted = {entry.key.decode() for entry in changed} | {key.decode() for key in gone}
    stage.check("none-skipped", notified == wanted, f"{len(notified)} keys were notified, {len(wanted)} changed")
    await check_state(stage, node, cluster)
    return report


async def recovered_again(node: Actor) -> bool:
    found = (await node.get("/v1/recovery")).get("recoveries", [])
    return len(found) > 1 and found[-1]["outcome"] == "done"


SCENARIOS = (
    Scenario(
        "overtaken",
        "compaction overtakes a replay in progress; the node switches to a snapshot by itself",
        "R6; compaction overtakes a running replay",
        overtaken,
        {
            "switched": "it began as case b, and replayed a part of the missed revisions",
            "none-skipped": "its component got each replayed revision once, then each key that the rest changed",
            "equal": EQUAL,
            "undisturbed": UNDISTURBED,
        },
        "c",
        (COMPACTED,),
    ),
    Scenario(
        "busy-writes",
        "writes continue, faster than the component of a node takes them; its recovery still ends",
        "R4, R6; it ends, never a livelock",
        busy_writes,
        {
            "ends": "the recovery ends while the writes continue",
            "close": "LM - LV is at most the acceptable difference in the report",
            "equal": EQUAL,
            "undisturbed": UNDISTURBED,
        },
        "c",
        ("revisions arrive faster", "replaying would cost more"),
    ),
    Scenario(
        "paused-past-compaction",
        "a running node is paused until the missed revisions are compacted; its components get the difference",
        "R5; the system described in the seed skips these changes",
        paused,
        {
            "goes-on": "the process is the same: nothing was restarted",
            "none-skipped": "its component gets every key that changed meanwhile, and no other",
            "equal": EQUAL,
            "undisturbed": UNDISTURBED,
        },
        "c",
        (COMPACTED,),
    ),
)
