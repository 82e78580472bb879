"""Entering a running cluster: say who one is, again and again, until the cluster's log says so too.

The node is added as a learner that becomes a voter by itself once it has caught up. It knows that it is in when the
membership in its own log names its storage; so an answer that is lost does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import aiohttp

from node.address import Address
from node.topology.own_node import OwnNode
from raftgroup.group import Group

log = logging.getLogger(__name__)

RETRY_S = 1.0
TIMEOUT_S = 10.0
CONFLICTS_MAX = 30
"""How often a change of membership that is in the way of this one is waited for."""


class JoinRefused(Exception):
    """The cluster does not take this node; says why and what to do. The node stops."""


async def join_cluster(own: OwnNode, group: Group, headers: Mapping[str, str]) -> None:
    """Return when the node is a member. `headers`: sent with each request. Raises JoinRefused."""
    if own.join is None:
        return
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        conflicts = 0
        while not _is_member(own, group):
            try:
                conflict = await _ask(session, own.join, own, group)
                conflicts += conflict is not None
                if conflict is not None and conflicts > CONFLICTS_MAX:
                    raise JoinRefused(f"{own.join} does not take {own.id} into {own.cluster}: {conflict}")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.warning("no answer from %s, trying again: %s", own.join, error or type(error).__name__)
            await asyncio.sleep(RETRY_S)
    log.info("%s is a member of %s", own.id, own.cluster)


def _is_member(own: OwnNode, group: Group) -> bool:
    member = group.members.get(own.id)
    return member is not None and member.incarnation == group.incarnation


async def _ask(session: aiohttp.ClientSession, at: Address, own: OwnNode, group: Group) -> str | None:
    """Returns what is in the way for now, if the cluster says so."""
    async with session.get(f"http://{at}/v1/members") as response:
        if response.status == HTTPStatus.MISDIRECTED_REQUEST:
            problem = await response.json(content_type=None)
            raise JoinRefused(f"--join {at} names no member of {own.cluster}: {problem.get('detail', problem)}")
        response.raise_for_status()
        known = {member["id"]: member["incarnation"] for member in (await response.json())["members"]}
    if known.get(own.id) == group.incarnation:
        return None
    asked: dict[str, Any] = {
        "id": own.id,
        "incarnation": group.incarnation,
        "addresses": dict(own.addresses),
        "voter": True,
    }
    async with session.post(f"http://{at}/v1/members", json=asked) as response:
        if response.status >= 500:
            log.warning("%s can't add this node now (HTTP %d), trying again", at, response.status)
        if not 400 <= response.status < 500:
            return None
        problem = await response.json(content_type=None)
        detail = str(problem.get("detail", problem))
        if response.status != HTTPStatus.CONFLICT:
            raise JoinRefused(f"{at} does not take {own.id} into {own.cluster}: {detail}")
        log.warning("%s does not add this node yet, trying again: %s", at, detail)
        return detail
