"""Whom a member dials: members, whoever knows more, and whoever has moved (issue 2, N7)."""

from __future__ import annotations

from dataclasses import replace

from raftgroup.bootstrap import Greeting
from raftgroup.contacts import Contacts
from raftgroup.membership import Member, MemberRole, Membership


def member(id_: str, address: str | None) -> Member:
    return Member(id_, MemberRole.VOTER, f"storage of {id_}", {} if address is None else {"peer": address})


def greeting(id_: str, address: str, version: int = 1) -> Greeting:
    return Greeting("c", id_, f"storage of {id_}", address, "", {}, version)


def dialled(known: str | None, *greetings: Greeting) -> dict[str, str]:
    contacts = Contacts("n1")
    for each in greetings:
        contacts.met(each)
    return contacts.wanted(Membership((member("n1", "h:1"), member("n2", known)), version=1))


def test_members_are_dialled_where_the_membership_says() -> None:
    assert dialled("h:2") == {"n2": "h:2"}
    assert dialled("h:2", greeting("n2", "other-name-of-h:2")) == {"n2": "h:2"}


def test_who_has_no_address_or_another_port_is_dialled_where_it_greets_from() -> None:
    assert dialled(None) == {}
    assert dialled(None, greeting("n2", "h:2")) == {"n2": "h:2"}
    assert dialled("h:2", greeting("n2", "h:3")) == {"n2": "h:3"}
    assert dialled("h:2", greeting("n2", "h:3"), greeting("n2", "h:2")) == {"n2": "h:2"}


def test_another_storage_that_greets_has_not_moved() -> None:
    stranger = replace(greeting("n2", "h:3"), incarnation="another storage")
    assert dialled("h:2", stranger) == {"n2": "h:2"}


def test_once_the_membership_says_so_the_greeting_is_forgotten() -> None:
    contacts = Contacts("n1")
    contacts.met(greeting("n2", "h:3"))
    before = Membership((member("n1", "h:1"), member("n2", "h:2")), version=1)
    after = Membership((member("n1", "h:1"), member("n2", "h:3")), version=2)
    assert [contacts.wanted(each)["n2"] for each in (before, after, before)] == ["h:3", "h:3", "h:2"]


def test_who_knows_a_newer_membership_is_dialled_too() -> None:
    assert dialled("h:2", greeting("n3", "h:3", version=2)) == {"n2": "h:2", "n3": "h:3"}
    assert dialled("h:2", greeting("n3", "h:3", version=1)) == {"n2": "h:2"}
