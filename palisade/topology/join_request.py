"""Joining a running cluster: sends the join request repeatedly until the cluster's log contains the node.

The node is added as a learner that becomes a voter by itself once it has caught up. It is a member when
the membership in its own log names its storage; so a lost response is harmless.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from palisade.base.address import Address
from palisade.base.errors import PalisadeError
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.raftgroup.group import Group
from palisade.topology.own_node import OwnNode

log = logging.getLogger(__name__)

RETRY_S = 1.0
TIMEOUT_S = 10.0
CONFLICTS_MAX = 30
"""How often the request is repeated after a conflict, such as another change of membership in progress."""


class JoinRefused(PalisadeError):
    """The cluster refuses this node; the text has reason and remedy. The node stops."""

    code = "join-refused"


async def join_cluster(own: OwnNode, group: Group, headers: Mapping[str, str]) -> None:
    """Return when the node is a member. `headers`: sent with each request. Raises JoinRefused, and NodeFailed for a
    storage that was a member and was removed."""
    if own.join is None:
        return
    async with HttpRequests(headers, timeout_s=TIMEOUT_S) as requests:
        conflicts = 0
        while not _is_member(own, group):
            group.check_alive()
            try:
                conflict = await _ask(requests, own.join, own, group)
                conflicts += conflict is not None
                if conflict is not None and conflicts > CONFLICTS_MAX:
                    raise JoinRefused(f"{own.join} does not admit {own.id} to {own.cluster}: {conflict}")
            except NoAnswer as error:
                log.warning("no answer to the request to join, retrying: address=%s reason=%s", own.join, error.reason)
            await asyncio.sleep(RETRY_S)
    log.info("joined the cluster: node=%s cluster=%s", own.id, own.cluster)


def _is_member(own: OwnNode, group: Group) -> bool:
    member = group.members.get(own.id)
    return member is not None and member.incarnation == group.incarnation


async def _ask(requests: HttpRequests, at: Address, own: OwnNode, group: Group) -> str | None:
    """Returns what delays the join, if the cluster names it. Raises NoAnswer, JoinRefused."""
    listed = await requests.json(str(at), "/v1/members")
    if listed.status == HTTPStatus.MISDIRECTED_REQUEST:
        raise JoinRefused(f"--join {at} names no member of {own.cluster}: {listed.detail}")
    if listed.status >= 400:
        raise NoAnswer(str(at), f"HTTP {listed.status}: {listed.detail}")
    known = {member["id"]: member["incarnation"] for member in listed.content["members"]}
    if known.get(own.id) == group.incarnation:
        return None
    asked: dict[str, Any] = {
        "id": own.id,
        "incarnation": group.incarnation,
        "addresses": dict(own.addresses),
        "voter": True,
    }
    answer = await requests.json(str(at), "/v1/members", "POST", asked)
    if answer.status >= 500:
        log.warning("not added yet, retrying: address=%s http_status=%d", at, answer.status)
    if not 400 <= answer.status < 500:
        return None
    if answer.status != HTTPStatus.CONFLICT:
        raise JoinRefused(f"{at} does not admit {own.id} to {own.cluster}: {answer.detail}")
    log.warning("not added yet, retrying: address=%s reason=%s", at, answer.detail)
    return answer.detail
