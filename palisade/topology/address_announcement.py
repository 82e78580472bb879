"""A member whose addresses the cluster does not know announces them: one that was an embedded store before, or one
that was started again with other ports.

The membership is changed only for what is missing or differs in its port (or in its host, where --advertise-host names
one): the same host may well be called by another name in --initial-cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from palisade.base.address import Address
from palisade.raftgroup.errors import NodeFailed, RaftError
from palisade.raftgroup.group import Group
from palisade.raftgroup.membership import Member, MemberRole
from palisade.topology.own_node import OwnNode

log = logging.getLogger(__name__)

RETRY_S = 0.5


def current_addresses(known: Mapping[str, str], node: OwnNode) -> dict[str, str]:
    """The addresses that the membership should have for this node; now it has `known`."""
    own = node.addresses
    return {**known, **{name: own[name] for name in own if _is_elsewhere(known.get(name), own[name], node)}}


def _is_elsewhere(known: str | None, own: str, node: OwnNode) -> bool:
    if known is None:
        return True
    there, here = Address.parse(known), Address.parse(own)
    return there.port != here.port or (node.host_is_fixed and there.host != here.host)


async def announce_addresses(node: OwnNode, group: Group) -> None:
    """Run until cancelled: a change that was in the log may be taken back. Raises NodeFailed."""
    while True:
        member = group.members.get(node.id)
        if member is not None and member.incarnation == group.incarnation:
            addresses = current_addresses(member.addresses, node)
            if addresses != member.addresses:
                await _move(group, Member(member.id, MemberRole.LEARNER, member.incarnation, addresses))
        await asyncio.sleep(RETRY_S)


async def _move(group: Group, member: Member) -> None:
    try:
        await group.add(member)
        log.info("addresses announced: node=%s peer=%s", member.id, member.addresses["peer"])
    except NodeFailed:
        raise
    except RaftError as error:
        log.info("addresses not announced yet, retrying: node=%s error=%s", member.id, error)
