"""Creates a new cluster from one survivor after the permanent loss of a majority of the voters.

Guarantee: the survivor's log is kept completely, including entries not known to be committed, because they may have
been acknowledged. Two entries are appended, durable both or neither by one sync. One is the membership with the
survivor as the only voter, in a new generation; the other informs the state machine. Thus the survivor elects itself at
its next start, commits all of its log, and every member that joins later reaches the same state from the same log. This
also ends a pending change of membership that only lost members could have committed: the newest membership of a log is
effective, and that is now this one.

Not guaranteed: writes that a majority without the survivor has acknowledged are lost. That is why the generation grows
(`generations.py`): no member of the earlier cluster takes part again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palisade.raftgroup.errors import DataDirectoryError, MembershipRefused
from palisade.raftgroup.journal_identity import open_storage, realigned, stored_names
from palisade.raftgroup.membership import FIRST_GENERATION, Membership, MembershipLog
from palisade.raftgroup.membership_entries import membership_entry, read_memberships
from palisade.raftgroup.ports import Entry, Journal, Random
from palisade.raftgroup.proposals import batch_entry


@dataclass(frozen=True, slots=True)
class Survivor:
    """The state of one member. Of several survivors the one with the greatest (last_term, last_index) is most advanced.

    `takes_in`: the generation of the log that it took when it joined, perhaps incompletely; 0 if it never did.
    """

    cluster: str
    member: str
    membership: Membership
    last_index: int
    last_term: int
    takes_in: int = 0

    @property
    def generation(self) -> int:
        """The next generation must be newer than this one."""
        return max(self.membership.generation, self.takes_in, FIRST_GENERATION)

    @property
    def lost(self) -> tuple[str, ...]:
        """The members that the new cluster abandons."""
        return tuple(sorted(member.id for member in self.membership.members if member.id != self.member))


def survey(journal: Journal, applied: tuple[int, int], random: Random) -> Survivor:
    """Inspect a stopped member without changing it. Raises DataDirectoryError for one that cannot continue alone,
    MembershipRefused if there is nothing to force."""
    names = stored_names(journal)
    if names is None:
        raise DataDirectoryError("no member has ever used the data directory: there is nothing to continue from")
    cluster, member = names
    stored = open_storage(journal, cluster, member, random)
    base = realigned(journal, applied, stored.membership)
    memberships = MembershipLog(base if base is not None else Membership(()))
    read_memberships(journal, memberships)
    membership = memberships.current
    if stored.origin and not membership.members:
        raise DataDirectoryError(
            f"{member} was restored from {stored.origin}, and its cluster has not been founded since, so no majority "
            "was lost: start all its founding members ('palisade up', or 'palisade node --initial-cluster'). If some "
            "of their folders are lost, restore the backup again"
        )
    known = membership.get(member)
    if known is None or known.incarnation != stored.incarnation:
        raise DataDirectoryError(
            f"{member} is no member of {cluster} by its own log (it was not admitted yet, was removed, or has lost its "
            "disk since): force the new cluster on another survivor, or restore a backup"
        )
    if membership.voters == {member}:
        raise MembershipRefused(f"{member} already is the only voter of {cluster}: start it as usual")
    return Survivor(cluster, member, membership, journal.last.index, journal.last.term, stored.generation)


async def force_new_cluster(
    journal: Journal, survivor: Survivor, generation: int, stamp: Any, commands: Sequence[bytes]
) -> Membership:
    """Make `survivor` the only voter of `generation`; `commands` inform its state machine. Durable on return."""
    if generation <= survivor.generation:
        raise MembershipRefused(f"generation {generation} is not newer than {survivor.generation}")
    membership = survivor.membership.alone(survivor.member, generation)
    term = journal.term + 1
    journal.set_term(term, None)
    for content in (batch_entry(stamp, commands), membership_entry(membership)):
        journal.append(Entry(content, journal.last.index + 1, term))
    await journal.sync()
    return membership
