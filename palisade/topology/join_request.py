"""Joining a running cluster: sends the join request until the cluster has accepted it, then waits for the log.

The node is added as a learner that becomes a voter by itself once it has caught up. It is a member when
the membership in its own log names its storage; so a lost response is harmless.

A request that was accepted is not repeated: the node may have been removed since, and would be added again, although
its storage ends with its removal.
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
MISSING_MAX = 60
"""How often in a row an accepted node may be missing in the list of members. The member that is asked may lag behind
the leader."""


class JoinRefused(PalisadeError):
    """The cluster refuses this node; the text has reason and remedy. The node stops."""

    code = "join-refused"


class Joining:
    """What the member at `address` has answered to `node`, which decides whether the node has to ask again."""

    def __init__(self, node: str, cluster: str, address: Address) -> None:
        self._node, self._cluster, self._address = node, cluster, address
        self._accepted = False
        self._missing = self._conflicts = 0

    def must_ask(self, *, listed: bool) -> bool:
        """Whether to send a join request, now that the member has listed this storage or not. Raises JoinRefused if an
        accepted node has been missing for too long."""
        self._accepted = self._accepted or listed
        self._missing = 0 if listed else self._missing + 1
        if self._accepted and self._missing > MISSING_MAX:
            raise JoinRefused(
                f"{self._node} was added to {self._cluster}, but has been missing in the members that {self._address} "
                f"lists for {MISSING_MAX * RETRY_S:g} s: it was removed again before it had the log, or that member "
                "has lost its leader. To let it join again, start it with --join and an empty data directory"
            )
        return not self._accepted

    def accepted(self) -> None:
        self._accepted, self._missing = True, 0

    def conflicted(self, reason: str) -> None:
        """Raises JoinRefused after too many conflicts."""
        self._conflicts += 1
        if self._conflicts > CONFLICTS_MAX:
            raise JoinRefused(f"{self._address} does not admit {self._node} to {self._cluster}: {reason}")


async def join_cluster(own: OwnNode, group: Group, headers: Mapping[str, str]) -> None:
    """Return when the node is a member. `headers`: sent with each request. Raises JoinRefused, and NodeFailed for a
    storage that was a member and was removed."""
    if own.join is None:
        return
    joining = Joining(own.id, own.cluster, own.join)
    async with HttpRequests(headers, timeout_s=TIMEOUT_S) as requests:
        while not is_member(own.id, group):
            group.check_alive()
            try:
                if joining.must_ask(listed=await _is_listed(requests, own.join, own, group)):
                    await _ask(requests, own.join, own, group, joining)
            except NoAnswer as error:
                log.warning("no answer to the request to join, retrying: address=%s reason=%s", own.join, error.reason)
            await asyncio.sleep(RETRY_S)
    log.info("joined the cluster: node=%s cluster=%s", own.id, own.cluster)


def is_member(node: str, group: Group) -> bool:
    """According to its own log."""
    member = group.members.get(node)
    return member is not None and member.incarnation == group.incarnation


async def _is_listed(requests: HttpRequests, at: Address, own: OwnNode, group: Group) -> bool:
    """Raises NoAnswer, JoinRefused."""
    listed = await requests.json(str(at), "/v1/members")
    if listed.status == HTTPStatus.MISDIRECTED_REQUEST:
        raise JoinRefused(f"--join {at} names no member of {own.cluster}: {listed.detail}")
    if listed.status >= 400:
        raise NoAnswer(str(at), f"HTTP {listed.status}: {listed.detail}")
    return any((each["id"], each["incarnation"]) == (own.id, group.incarnation) for each in listed.content["members"])


async def _ask(requests: HttpRequests, at: Address, own: OwnNode, group: Group, joining: Joining) -> None:
    """Raises NoAnswer, JoinRefused."""
    asked: dict[str, Any] = {
        "id": own.id,
        "incarnation": group.incarnation,
        "addresses": dict(own.addresses),
        "voter": True,
    }
    answer = await requests.json(str(at), "/v1/members", "POST", asked)
    if answer.status < 400:
        joining.accepted()
    elif answer.status >= 500:
        log.warning("not added yet, retrying: address=%s http_status=%d", at, answer.status)
    elif answer.status == HTTPStatus.CONFLICT:
        log.warning("not added yet, retrying: address=%s reason=%s", at, answer.detail)
        joining.conflicted(answer.detail)
    else:
        raise JoinRefused(f"{at} does not admit {own.id} to {own.cluster}: {answer.detail}")
