"""Members of different generations never work together, and who is left behind by a newer one stops.

A *generation* is a history of the group. A restored backup and a forced new cluster break it: the log of before and the
log of after do not follow from each other, though cluster, members and even storages may be the same. So every
membership names its generation, every greeting says it, and a greeting of another one is refused, whichever is newer.

What the refused one does is decided here, too. A storage that this node knows as a member and that goes by a newer
generation now has left the group for good; and if so many voters went that the others are no majority, nobody needs
this one any more. In both cases it stops, with the reason. A single stranger at the address of a member, perhaps a
restored copy that was started by mistake, stops nobody. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftgroup.membership import Membership

OTHER_GENERATION = "other-generation: "
"""How a refusal begins: `<generation> <incarnation>: ` of who refuses follows, then the text."""
UNKNOWN = 0
"""Of a node that has no history yet: it joins, and is told."""


def judge_generation(member: str, its: int, own: int, incarnation: str) -> str | None:
    """The reason to refuse a member of generation `its` on a node of generation `own`, or None."""
    if its == own or UNKNOWN in (its, own):
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


def outlived(own: str, incarnation: str, membership: Membership, refusals: Mapping[str, str]) -> str | None:
    """Why this node must stop, since newer generations go on without it; None while that is not so.

    `refusals`: members that do not let this node in, and why. `membership`: the newest one of this node.
    Who has another storage in it, or is not in it, joins: it has come to the past in the log of those that refuse it.
    """
    if not membership.has_storage(own, incarnation):
        return None
    newer = set[str]()
    for member, reason in refusals.items():
        known, found = membership.get(member), refusing_generation(reason)
        if known is None or found is None or found[0] <= membership.generation:
            continue
        if known.incarnation == found[1]:
            return _left_behind(own, member, found[0], membership.generation)
        newer.add(member)
    voters = membership.voters
    if newer and len(voters - newer) * 2 <= len(voters):
        member = min(newer)
        found = refusing_generation(refusals[member])
        return _left_behind(own, member, found[0] if found else UNKNOWN, membership.generation)
    return None


def _left_behind(own: str, member: str, newer: int, generation: int) -> str:
    return (
        f"{member} goes by generation {newer} of this cluster, and {own} holds generation {generation}: a restored "
        f"backup or a forced new cluster has broken the history, and what {own} holds is of before. Put its data "
        "directory aside (it may hold writes that are lost to the others), and start it with --join and an empty one"
    )
