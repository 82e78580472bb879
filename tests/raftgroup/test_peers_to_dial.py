"""Which nodes a member dials: members, nodes with a newer membership, and nodes that have moved (issue 2, N7)."""

from __future__ import annotations

from dataclasses import replace

from palisade.raftgroup.founding import Greeting
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.raftgroup.peers_to_dial import Contacts


def member(id_: str, address: str | None) -> Member:
    return Member(id_, MemberRole.VOTER, f"storage of {id_}", {} if address is None else {"peer": address})


def greeting(id_: str, address: str, version: int = 1) -> Greeting:
    return Greeting("c", id_, f"storage of {id_}", address, "", {}, version)


def dialled(known: str | None, *greetings: Greeting) -> dict[str, str]:
    contacts = Contacts("n1")
    for each in greetings:
        contacts.met(each)
    return wanted(contacts, Membership((member("n1", "h:1"), member("n2", known)), version=1))


def wanted(
    contacts: Contacts, membership: Membership, committed: Membership | None = None, now: float = 0.0
) -> dict[str, str]:
    return contacts.wanted(membership, membership if committed is None else committed, now)


def test_members_are_dialled_at_their_membership_address() -> None:
    assert dialled("h:2") == {"n2": "h:2"}
    assert dialled("h:2", greeting("n2", "other-name-of-h:2")) == {"n2": "h:2"}


def test_member_with_no_or_another_address_is_dialled_where_it_greets_from() -> None:
    assert dialled(None) == {}
    assert dialled(None, greeting("n2", "h:2")) == {"n2": "h:2"}
    assert dialled("h:2", greeting("n2", "h:3")) == {"n2": "h:3"}
    assert dialled("h:2", greeting("n2", "h:3"), greeting("n2", "h:2")) == {"n2": "h:2"}


def test_other_storage_does_not_count_as_moved() -> None:
    stranger = replace(greeting("n2", "h:3"), incarnation="another storage")
    assert dialled("h:2", stranger) == {"n2": "h:2"}


def test_greeting_is_forgotten_once_the_membership_has_the_address() -> None:
    contacts = Contacts("n1")
    contacts.met(greeting("n2", "h:3"))
    before = Membership((member("n1", "h:1"), member("n2", "h:2")), version=1)
    after = Membership((member("n1", "h:1"), member("n2", "h:3")), version=2)
    assert [wanted(contacts, each)["n2"] for each in (before, after, before)] == ["h:3", "h:3", "h:2"]


def test_member_with_a_newer_membership_is_dialled() -> None:
    assert dialled("h:2", greeting("n3", "h:3", version=2)) == {"n2": "h:2", "n3": "h:3"}
    assert dialled("h:2", greeting("n3", "h:3", version=1)) == {"n2": "h:2"}


PAIR = Membership((member("n1", "h:1"), member("n2", "h:2")), version=1)
ALONE = PAIR.without("n2")


def test_removed_member_is_disconnected_a_moment_after_the_commit() -> None:
    """A node that requests its own removal receives the result, however long that takes."""
    contacts = Contacts("n1")
    steps = [(PAIR, PAIR, 0.0), (ALONE, PAIR, 0.2), (ALONE, PAIR, 7.0), (ALONE, ALONE, 7.9), (ALONE, ALONE, 8.0)]
    assert [wanted(contacts, *step) for step in steps] == [{"n2": "h:2"}] * 4 + [{}]
    assert wanted(contacts, ALONE, PAIR, 9.0) == {}, "no member has that address any more"


def test_undone_removal_disconnects_no_member() -> None:
    contacts = Contacts("n1")
    steps = [(PAIR, PAIR, 0.0), (ALONE, PAIR, 3.0), (PAIR, PAIR, 6.0), (PAIR, PAIR, 9.0)]
    assert [wanted(contacts, *step) for step in steps] == [{"n2": "h:2"}] * 4


def test_removed_member_that_moved_is_dialled_at_its_new_address_until_then() -> None:
    contacts = Contacts("n1")
    contacts.met(greeting("n2", "h:3"))
    assert [wanted(contacts, each, PAIR, 0.5) for each in (PAIR, ALONE)] == [{"n2": "h:3"}] * 2


def test_member_that_returns_with_another_address_is_dialled_there_at_once() -> None:
    contacts = Contacts("n1")
    again = ALONE.with_member(replace(member("n2", "h:9"), role=MemberRole.LEARNER, incarnation="another storage"))
    steps = [(PAIR, PAIR, 0.0), (ALONE, ALONE, 0.2), (again, ALONE, 0.4)]
    assert [wanted(contacts, *step) for step in steps] == [{"n2": "h:2"}, {"n2": "h:2"}, {"n2": "h:9"}]
