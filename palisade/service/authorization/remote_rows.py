"""The rows of permissions as a member has them, for a fenced node that is no member: a linearizable read over HTTP.

The join token lets it in, and it waits for what is not released yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from palisade.raftgroup.errors import RaftError
from palisade.service.authorization.rights import PermissionRow
from palisade.service.authorization.rows import WouldBlock
from palisade.service.cluster_fallback import content_in, in_base64
from palisade.wire.auth_errors import PermissionsUnknown
from palisade.wire.topology_errors import TopologyError

Ask = Callable[[str, str, Any], Awaitable[Any]]
"""(method, path, body) -> the answer of a member. Raises RaftError, TopologyError."""


class RemoteRows:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def state(self) -> object | None:
        return None

    def now(self, key: bytes) -> PermissionRow | None:
        raise WouldBlock

    async def later(self, key: bytes) -> PermissionRow | None:
        try:
            return row_in(await self._ask("POST", "/v1/range", {"key_base64": in_base64(key)}), key)
        except (RaftError, TopologyError) as error:
            raise PermissionsUnknown(f"no member says who may do what ({error}): try again") from error


def row_in(answer: Any, key: bytes) -> PermissionRow | None:
    """Raises PermissionsUnknown for what is no answer to this question."""
    try:
        kvs = answer["kvs"]
        if kvs == []:
            return None
        (kv,) = kvs
        if content_in(kv, "key") != key or type(kv["mod_revision"]) is not int:
            raise ValueError("it is about another key")
        return PermissionRow(content_in(kv, "value"), kv["mod_revision"])
    except (KeyError, TypeError, ValueError) as error:
        raise PermissionsUnknown(f"what a member answers makes no sense ({error}): try again") from None
