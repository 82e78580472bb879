"""Entering a running cluster: say who one is, again and again, until the cluster's log says so too.

The node is added as a learner that becomes a voter by itself once it has caught up. It knows that it is in when the
membership in its own log names its storage; so an answer that is lost does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any

import aiohttp

from base.address import Address
from base.errors import PalisadeError
from node.authorization.wiring import headers_of
from node.config import NodeConfig
from raftgroup.group import Group

log = logging.getLogger(__name__)

RETRY_S = 1.0
TIMEOUT_S = 10.0
CONFLICTS_MAX = 30
"""How often a change of membership that is in the way of this one is waited for."""


class JoinRefused(PalisadeError):
    """The cluster does not take this node; says why and what to do. The node stops."""

    code = "join-refused"


async def join_cluster(config: NodeConfig, group: Group) -> None:
    """Return when the node is a member. Raises JoinRefused."""
    if config.join is None:
        return
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers_of(config)) as session:
        conflicts = 0
        while not _is_member(config, group):
            try:
                conflict = await _ask(session, config.join, config, group)
                conflicts += conflict is not None
                if conflict is not None and conflicts > CONFLICTS_MAX:
                    raise JoinRefused(f"{config.join} does not take {config.id} into {config.cluster}: {conflict}")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.warning("no answer from %s, trying again: %s", config.join, error or type(error).__name__)
            await asyncio.sleep(RETRY_S)
    log.info("%s is a member of %s", config.id, config.cluster)


def _is_member(config: NodeConfig, group: Group) -> bool:
    member = group.members.get(config.id)
    return member is not None and member.incarnation == group.incarnation


async def _ask(session: aiohttp.ClientSession, at: Address, config: NodeConfig, group: Group) -> str | None:
    """Returns what is in the way for now, if the cluster says so."""
    async with session.get(f"http://{at}/v1/members") as response:
        if response.status == HTTPStatus.MISDIRECTED_REQUEST:
            problem = await response.json(content_type=None)
            raise JoinRefused(f"--join {at} names no member of {config.cluster}: {problem.get('detail', problem)}")
        response.raise_for_status()
        known = {member["id"]: member["incarnation"] for member in (await response.json())["members"]}
    if known.get(config.id) == group.incarnation:
        return None
    asked: dict[str, Any] = {
        "id": config.id,
        "incarnation": group.incarnation,
        "addresses": config.advertised(),
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
            raise JoinRefused(f"{at} does not take {config.id} into {config.cluster}: {detail}")
        log.warning("%s does not add this node yet, trying again: %s", at, detail)
        return detail
