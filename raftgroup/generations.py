"""Members of different generations never work together; a node left behind by a newer generation stops.

A *generation* is a history of the group. A restored backup and a forced new cluster break it: the earlier and the later
log do not follow from each other, though cluster, members and even storages may be the same. Thus every membership
names its generation, every greeting contains it, and a greeting of another generation is refused, newer or older.

A joining node has no generation. It takes that of the leader whose log it copies, before it copies anything, and keeps
it. The log itself cannot determine it: a log begins with the past, with earlier generations, and restarted members of
such a past may also know this node. Two logs of different generations may have equal terms, and would match where they
differ.

The reaction of the refused node is decided here as well. It stops, with the reason, in four cases. First, a joining
node without membership stops for any member of a newer generation than the one that it took: it has nothing to lose,
and no other way to find out. Second, a storage that this node knows as a member now has a newer generation, so it has
left this group permanently. Third, so many voters have left that the others are no majority. Fourth, the node was
started to found the group, which needs all founding members, and one of them has a newer generation. Otherwise a single
foreign node at the address of a member, perhaps a restored copy started by mistake, does not stop this node. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from palisade.raftgroup.membership import Membership

OTHER_GENERATION = "other-generation: "
"""The prefix of a refusal; `<generation> <incarnation>: ` of the refusing node follow, then the text."""
UNKNOWN = 0
"""A joining node without history; it takes the generation of the first leader that sends to it."""


def may_work_together(its: int, own: int) -> bool:
    return its == own or UNKNOWN in (its, own)


def judge_generation(member: str, its: int, own: int, incarnation: str) -> str | None:
    """The reason to refuse a member of generation `its` on a node of generation `own`, or None."""
    if may_work_together(its, own):
        return None
    broken = "a restored backup or a forced new cluster has broken the history in between"
    if its < own:
        text = (
            f"{member} is of generation {its}, and this cluster of generation {own}: {broken}, so the data of {member} "
            "is no part of it. Put its data directory aside, and start it with --join and an empty one"
        )
    else:
        text = (
            f"{member} is of generation {its}, and this node of generation {own}: {broken}. If that was intended, put "
            "the data directory of this node aside, and start it with --join and an empty one, or restore the same "
            "backup"
        )
    return f"{OTHER_GENERATION}{own} {incarnation}: {text}"


def refusing_generation(reason: str) -> tuple[int, str] | None:
    """(generation, incarnation) of the refusing node; None for another kind of refusal."""
    if not reason.startswith(OTHER_GENERATION):
        return None
    number, _, rest = reason.removeprefix(OTHER_GENERATION).partition(" ")
    incarnation, colon, _ = rest.partition(":")
    return (int(number), incarnation) if colon and number.isascii() and number.isdigit() else None


def outlived(
    own: str, generation: int, membership: Membership, refusals: Mapping[str, str], *, founds: bool = False
) -> str | None:
    """Why this node must stop, because newer generations continue without it; None otherwise.

    `refusals`: members that refuse this node, with the reason. `membership`: the newest one of this node; `generation`:
    that of this node, which differs from that of `membership` while it joins. `founds`: its `membership` is that of the
    founding members, which have not agreed on it.
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
        if founds or known.incarnation == found[1]:
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
        f"{member} has generation {newer} of this cluster, and {own} holds generation {generation}: a restored "
        f"backup or a forced new cluster has broken the history, and the data of {own} is of the earlier one. Put its "
        "data directory aside (it may hold writes that the others lost), and start it with --join and an empty one"
    )


def new_storage(own: str, member: str) -> str:
    """For a node that was started to found a group, and has nothing to lose."""
    return (
        f"the cluster of {member} continues after a restored backup or a forced new cluster, and the data directory of "
        f"{own} is new: start it with --join instead of --initial-cluster to let it join"
    )
