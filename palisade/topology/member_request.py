"""Parses a request to add a member, from HTTP or the stream. Pure.

An accepted request becomes an entry of the log, which every node stores and relies on: so id, storage and addresses are
checked before it is proposed, on every path.
"""

from __future__ import annotations

from typing import Any

from palisade.base.address import Address, AddressError
from palisade.base.errors import ConfigError
from palisade.base.identifier import check_id
from palisade.metastore.errors import InvalidRequest
from palisade.raftgroup.membership import Member, MemberRole

ADDRESSES_MAX = 8
NAME_CHARACTERS_MAX = 64
"""Of an incarnation, and of what an address is for."""


def new_member(id_: Any, incarnation: Any, addresses: Any, voter: Any) -> Member:
    """A learner; `voter`: it is promoted once it has caught up. Raises InvalidRequest."""
    if type(id_) is not str:
        raise InvalidRequest(f"a member's id is a text, not {type(id_).__name__}")
    try:
        check_id("the member's id", id_)
    except ConfigError as error:
        raise InvalidRequest(str(error)) from None
    if not _is_name(incarnation):
        raise InvalidRequest(
            f"the incarnation of {id_} is a text of 1 to {NAME_CHARACTERS_MAX} characters, in one line"
        )
    if type(voter) is not bool:
        raise InvalidRequest(f"voter is true or false, not {voter!r:.40}: whether {id_} is to be one")
    return Member(id_, MemberRole.LEARNER, incarnation, _addresses(id_, addresses), becomes_voter=voter)


def _addresses(id_: str, given: Any) -> dict[str, str]:
    if type(given) is not dict or len(given) > ADDRESSES_MAX or not all(map(_is_name, given)):
        raise InvalidRequest(
            f'the addresses of {id_} are not 1 to {ADDRESSES_MAX} addresses, such as {{"peer": "127.0.0.1:7502"}}'
        )
    if "peer" not in given:
        raise InvalidRequest(f"the addresses of {id_}: 'peer' is missing, where it listens for other members")
    for purpose, address in given.items():
        try:
            Address.parse(address if type(address) is str else "")
        except AddressError as error:
            raise InvalidRequest(f"the address {purpose!r} of {id_}: {str(error)[:200]}") from None
    return dict(given)


def _is_name(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= NAME_CHARACTERS_MAX and value.isprintable()
