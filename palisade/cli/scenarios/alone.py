"""Scenarios of a node without its cluster, and of a node that is refused."""

from __future__ import annotations

import json
import shutil
from urllib.parse import quote

from palisade.base.address import Address
from palisade.base.port_probe import PortUnavailable, check_free
from palisade.cli.scenarios.actor import Actor
from palisade.cli.scenarios.catching_up import a_follower
from palisade.cli.scenarios.edits import AIRPORTS, below
from palisade.cli.scenarios.members import Members
from palisade.cli.scenarios.refusing import REFUSED
from palisade.cli.scenarios.stage import Stage
from palisade.cli.scenarios.story import Report, Scenario
from palisade.topology.records import PROTOCOL_VERSION

TOKEN = "let-me-in-please"
MARK = "Palisade-Standalone"


async def standalone(stage: Stage) -> Report | None:
    cluster = await stage.cluster(1)
    node = await a_follower(stage, cluster)
    await cluster.kill()
    stage.say("all members are killed: there is no cluster; f1 starts with --standalone")
    node.arguments.append("--standalone")
    await node.start()
    await stage.until(lambda: node.get("/livez"), "f1 answering")
    entry = below(stage.entries, AIRPORTS)[0]
    status, found, headers = await node.ask("GET", f"/v1/kv/{quote(entry.key.decode(), safe='')}")
    count = (await node.get("/v1/kv?prefix=/catalog/&count_only=true")).get("count")
    right = status == 200 and found == json.loads(entry.value) and count == len(stage.entries)
    stage.check("reads", right, f"{count} keys, as of LV {(await node.status()).get('revision')}")
    ready = (await node.ask("GET", "/readyz"))[0]
    stage.check("marked", headers.get(MARK) == "true" and ready == 503, f"{MARK}: {headers.get(MARK)}, /readyz {ready}")
    refusal, problem, _ = await node.ask("POST", "/v1/put", {"key": "/a", "value": "b"})
    stage.check("read-only", (refusal, problem.get("code")) == (503, "standalone"), f"{refusal} {problem.get('code')}")
    stage.check("silent", is_silent(node), f"UDP port {node.swim} is unused")
    report = node.report()
    await node.stop()
    node.arguments.remove("--standalone")
    await cluster.start()
    stage.say("the members are started again, and f1 in its cluster, from the same folder")
    await node.start()
    back = await stage.caught_up(node, await cluster.latest())
    stage.check("comes-back", back["case"] == "a", f"case {back['case']}")
    return report


def is_silent(node: Actor) -> bool:
    """Whether its SWIM port is free."""
    try:
        check_free(Address.parse(node.swim), "SWIM", "", udp=True)
    except PortUnavailable:
        return False
    return True


async def join_rejected(stage: Stage) -> None:
    cluster = await stage.cluster(options=("--join-token", TOKEN))
    seed = cluster["n1"].http
    member = cluster.follower("f1", "--join-token", TOKEN)
    await member.start()
    await stage.caught_up(member, await cluster.latest())
    before = await names_in(cluster)
    strangers = {
        "token": cluster.follower("f2", "--join-token", "a-wrong-token", join=seed),
        "tag": cluster.follower("f3", "--join-token", TOKEN, join=seed),
        "name": cluster.follower("f1", "--join-token", TOKEN, join=seed, folder="second"),
    }
    tag = strangers["tag"].arguments
    tag[tag.index("--cluster") + 1] = "bazaar"
    stage.say("f1 has joined. Nodes with a wrong token, cluster tag, name and protocol version try to join")
    for stranger in strangers.values():
        await stranger.start()
    codes = await stage.all_end(strangers.values())
    words = {"token": "join token", "tag": "bazaar", "name": "name f1 is in use"}
    for (name, stranger), code in zip(strangers.items(), codes, strict=True):
        said = stranger.last_line()
        stage.check(name, code == REFUSED and words[name] in said, f"exit code {code}: {said}")
    asked = {"cluster": cluster.name, "protocol": PROTOCOL_VERSION + 1, "token": TOKEN, "name": "f4"}
    asked |= {"role": "follower", "instance": "i", "attempt": 1}
    status, problem, _ = await cluster["n1"].ask("POST", "/v1/topology/join", asked)
    reason = problem.get("reason")
    stage.check("version", (status, reason) == (403, "wrong-version"), f"{status} {reason}: {problem.get('detail')}")
    after = await names_in(cluster)
    held, said = await cluster.undisturbed()
    stage.check("undisturbed", held and after == before and await member.ready(), f"{said}; in the topology: {after}")
    for stranger in strangers.values():
        shutil.rmtree(stranger.folder)


async def names_in(cluster: Members) -> str:
    rows = (await cluster["n1"].get("/v1/topology")).get("logical", [])
    return ", ".join(sorted(f"{row['id']} {row['standing']}" for row in rows))


SCENARIOS = (
    Scenario(
        "standalone",
        "without its cluster, a node serves its vault for maintenance",
        "R8; seed 001",
        standalone,
        {
            "reads": "it serves the whole catalog as of LV",
            "marked": "its responses are marked as standalone, and it is never ready",
            "read-only": "it refuses writes",
            "silent": "it listens for HTTP only",
            "comes-back": "the same folder joins its cluster afterwards, by case a",
        },
        "standalone",
    ),
    Scenario(
        "join-rejected",
        "nodes that may not join are refused, with the reason",
        "R9; wrong tag, wrong version, wrong token, duplicate name",
        join_rejected,
        {
            "token": "a wrong token is refused, with exit code 2",
            "tag": "a node of another cluster is refused, with exit code 2",
            "name": "a second node with a name in use is refused, with exit code 2",
            "version": "another version of the join protocol is refused",
            "undisturbed": "members and topology are unchanged, and f1 is still in the topology",
        },
    ),
)
