"""Members of different generations never work together, and who is left behind by a newer one stops.

A *generation* is a history of the group. A restored backup and a forced new cluster break it: the log of before and the
log of after do not follow from each other, though cluster, members and even storages may be the same. So every
membership names its generation, every greeting says it, and a greeting of another one is refused, whichever is newer.

Who joins has none, and takes the one of the leader whose log it takes in, before it takes anything, for as long as it
holds any of it. By what it reads first, it would be of generations before: a log begins with the past, and members
of that past, which somebody has started again, may know it as well. Two logs of different generations may have the
same terms, and would match where they differ.

What the refused one does is decided here, too. One that joins, and has no membership yet, stops for anybody of a
newer generation than the one that it took: it has nothing to lose, and nobody else could tell it. A storage that this
node knows as a member and that goes by a newer generation now has left the group for good; and if so many voters went
that the others are no majority, nobody needs this one any more. In these cases it stops, with the reason. Else a single
stranger at the address of a member, perhaps a restored copy that was started by mistake, stops nobody. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from palisade.raftgroup.membership import Membership

OTHER_GENERATION = "other-generation: "
"""How a refusal begins: `<generation> <incarnation>: ` of who refuses follows, then the text."""
UNKNOWN = 0
"""Of a node that has no history yet: it joins, and goes by that of the first leader that has something for it."""


def may_work_together(its: int, own: int) -> bool:
    return its == own or UNKNOWN in (its, own)


def judge_generation(member: str, its: int, own: int, incarnation: str) -> str | None:
    """The reason to refuse a member of generation `its` on a node of generation `own`, or None."""
    if may_work_together(its, own):
        return None
    broken = "a restored backup or a forced new cluster has broken the history in between"
    if its < own:
        text = (
            f"{member} is of generation {its}, and this cluster of generation {own}: {broken}, so what {member} holds "
            "is no part of it. Put its data directory aside, and start it with --join and an empty one"
        )
    else:
        text = (
            f"{member} is of generation {its}, and this node of generation {own}: {broken}. If that was meant, put the "
            "data directory of this node aside, and start it with --join and an empty one, or restore the same backup"
        )
    return f"{OTHER_GENERATION}{own} {incarnation}: {text}"


def refusing_generation(reason: str) -> tuple[int, str] | None:
    """(generation, incarnation) of who refuses with this reason; None for a reason of another kind."""
    if not reason.startswith(OTHER_GENERATION):
        return None
    number, _, rest = reason.removeprefix(OTHER_GENERATION).partition(" ")
    incarnation, colon, _ = rest.partition(":")
    return (int(number), incarnation) if colon and number.isascii() and number.isdigit() else None


def outlived(own: str, generation: int, membership: Membership, refusals: Mapping[str, str]) -> str | None:
    """Why this node must stop, since newer generations go on without it; None while that is not so.

    `refusals`: members that do not let this node in, and why. `membership`: the newest one of this node, and
    `generation` the one that it goes by: another one than that of `membership` while it joins.
    """
    newer = set[str]()
    for member, reason in refusals.items():
        known, found = membership.get(member), refusing_generation(reason)
        if found is None or found[0] <= generation:
            continue
        if not membership.members:
            return left_behind(own, member, found[0], generation)
        if known is None:
            continue
        if known.incarnation == found[1]:
            return left_behind(own, member, found[0], generation)
        newer.add(member)
    voters = membership.voters
    if newer and len(voters - newer) * 2 <= len(voters):
        member = min(newer)
        found = refusing_generation(refusals[member])
        return left_behind(own, member, found[0] if found else UNKNOWN, generation)
    return None


def left_behind(own: str, member: str, newer: int, generation: int) -> str:
    return (
        f"{member} goes by generation {newer} of this cluster, and {own} holds generation {generation}: a restored "
        f"backup or a forced new cluster has broken the history, and what {own} holds is of before. Put its data "
        "directory aside (it may hold writes that are lost to the others), and start it with --join and an empty one"
    )
