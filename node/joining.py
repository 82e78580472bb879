"""Entering a running cluster: say who one is, again and again, until the cluster's log says so too.

The node is added as a learner that becomes a voter by itself once it has caught up. It knows that it is in when the
membership in its own log names its storage; so an answer that is lost does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any

from node.address import Address
from node.authorization.wiring import headers_of
from node.config import NodeConfig
from node.http_request import HttpRequests, NoAnswer
from raftgroup.group import Group

log = logging.getLogger(__name__)

RETRY_S = 1.0
TIMEOUT_S = 10.0
CONFLICTS_MAX = 30
"""How often a change of membership that is in the way of this one is waited for."""


class JoinRefused(Exception):
    """The cluster does not take this node; says why and what to do. The node stops."""


async def join_cluster(config: NodeConfig, group: Group) -> None:
    """Return when the node is a member. Raises JoinRefused."""
    if config.join is None:
        return
    async with HttpRequests(headers_of(config), timeout_s=TIMEOUT_S) as requests:
        conflicts = 0
        while not _is_member(config, group):
            try:
                conflict = await _ask(requests, config.join, config, group)
                conflicts += conflict is not None
                if conflict is not None and conflicts > CONFLICTS_MAX:
                    raise JoinRefused(f"{config.join} does not take {config.id} into {config.cluster}: {conflict}")
            except NoAnswer as error:
                log.warning("no answer from %s, trying again: %s", config.join, error.reason)
            await asyncio.sleep(RETRY_S)
    log.info("%s is a member of %s", config.id, config.cluster)


def _is_member(config: NodeConfig, group: Group) -> bool:
    member = group.members.get(config.id)
    return member is not None and member.incarnation == group.incarnation


async def _ask(requests: HttpRequests, at: Address, config: NodeConfig, group: Group) -> str | None:
    """Returns what is in the way for now, if the cluster says so. Raises NoAnswer, JoinRefused."""
    listed = await requests.json(str(at), "/v1/members")
    if listed.status == HTTPStatus.MISDIRECTED_REQUEST:
        raise JoinRefused(f"--join {at} names no member of {config.cluster}: {listed.detail}")
    if listed.status >= 400:
        raise NoAnswer(str(at), f"HTTP {listed.status}: {listed.detail}")
    known = {member["id"]: member["incarnation"] for member in listed.content["members"]}
    if known.get(config.id) == group.incarnation:
        return None
    asked: dict[str, Any] = {
        "id": config.id,
        "incarnation": group.incarnation,
        "addresses": config.advertised(),
        "voter": True,
    }
    answer = await requests.json(str(at), "/v1/members", "POST", asked)
    if answer.status >= 500:
        log.warning("%s can't add this node now (HTTP %d), trying again", at, answer.status)
    if not 400 <= answer.status < 500:
        return None
    if answer.status != HTTPStatus.CONFLICT:
        raise JoinRefused(f"{at} does not take {config.id} into {config.cluster}: {answer.detail}")
    log.warning("%s does not add this node yet, trying again: %s", at, answer.detail)
    return answer.detail
