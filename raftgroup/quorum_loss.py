"""A new cluster out of one survivor, when the majority of the voters is lost for ever.

What is promised: the survivor's log is kept whole, also what it does not know to be committed, since it may have been
acknowledged; behind it two entries follow, which one sync makes durable or not at all. One is the membership with the
survivor as the only voter, in a new generation; the other one is whatever the state machine has to know of that. So
the survivor elects itself at its next start, commits all of its log, and every member that joins later comes to the
same state from the same log. It also ends what a change of membership left standing that only lost members could have
committed: the newest membership of a log counts, and that is now this one.

What can't be promised: writes that were acknowledged by a majority without the survivor are lost. That is why the
generation grows (`generations.py`): nobody of before takes part again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palisade.raftgroup.command_entries import batch_entry
from palisade.raftgroup.errors import DataDirectoryError, MembershipRefused
from palisade.raftgroup.journal_identity import open_storage, realigned, stored_names
from palisade.raftgroup.membership import FIRST_GENERATION, Membership, MembershipLog
from palisade.raftgroup.membership_entries import membership_entry, read_memberships
from palisade.raftgroup.ports import Entry, Journal, Random


@dataclass(frozen=True, slots=True)
class Survivor:
    """What one member holds. Of several survivors the one with the greatest (last_term, last_index) holds most.

    `takes_in`: the generation of the log that it took in when it joined, perhaps not to its end; 0 if it never did.
    """

    cluster: str
    member: str
    membership: Membership
    last_index: int
    last_term: int
    takes_in: int = 0

    @property
    def generation(self) -> int:
        """What the next one has to be newer than."""
        return max(self.membership.generation, self.takes_in, FIRST_GENERATION)

    @property
    def lost(self) -> tuple[str, ...]:
        """The members that the new cluster goes on without."""
        return tuple(sorted(member.id for member in self.membership.members if member.id != self.member))


def survey(journal: Journal, applied: tuple[int, int], random: Random) -> Survivor:
    """Look at a stopped member; nothing is changed. Raises DataDirectoryError for one that could not go on by itself,
    MembershipRefused where nothing is to be forced."""
    names = stored_names(journal)
    if names is None:
        raise DataDirectoryError("the data directory has never been used by a member: there is nothing to go on with")
    cluster, member = names
    stored = open_storage(journal, cluster, member, random)
    base = realigned(journal, applied, stored.membership)
    memberships = MembershipLog(base if base is not None else Membership(()))
    read_memberships(journal, memberships)
    membership = memberships.current
    known = membership.get(member)
    if known is None or known.incarnation != stored.incarnation:
        raise DataDirectoryError(
            f"{member} is no member of {cluster} by its own log (it was not taken in yet, was removed, or has lost its "
            "disk since): force the new cluster on another survivor, or restore a backup"
        )
    if membership.voters == {member}:
        raise MembershipRefused(f"{member} is the only voter of {cluster} already: start it, nothing is to be forced")
    return Survivor(cluster, member, membership, journal.last.index, journal.last.term, stored.generation)


async def force_new_cluster(
    journal: Journal, survivor: Survivor, generation: int, stamp: Any, commands: Sequence[bytes]
) -> Membership:
    """Make `survivor` the only voter of `generation`; `commands` tell its state machine. On disk when this returns."""
    if generation <= survivor.generation:
        raise MembershipRefused(f"generation {generation} is not newer than {survivor.generation}")
    membership = survivor.membership.alone(survivor.member, generation)
    term = journal.term + 1
    journal.set_term(term, None)
    for content in (batch_entry(stamp, commands), membership_entry(membership)):
        journal.append(Entry(content, journal.last.index + 1, term))
    await journal.sync()
    return membership
