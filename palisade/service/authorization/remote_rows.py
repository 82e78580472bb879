"""Permission rows of a fenced node that is no member: a linearizable read from a member over HTTP.

The node authenticates by the join token; the read waits for changes that are not released yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from palisade.raftgroup.errors import RaftError
from palisade.service.authorization.rights import PermissionRow
from palisade.service.authorization.rows import SILENT_CLUSTER, WouldBlock
from palisade.service.cluster_fallback import content_in, in_base64
from palisade.wire.auth_errors import PermissionsUnknown
from palisade.wire.topology_errors import TopologyError

Ask = Callable[[str, str, Any], Awaitable[Any]]
"""(method, path, body) -> the response of a member. Raises RaftError, TopologyError."""


class RemoteRows:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def state(self) -> object | None:
        return None

    def try_read(self, key: bytes) -> PermissionRow | None:
        raise WouldBlock

    async def read(self, key: bytes) -> PermissionRow | None:
        try:
            return row_in(await self._ask("POST", "/v1/range", {"key_base64": in_base64(key)}), key)
        except (RaftError, TopologyError) as error:
            raise PermissionsUnknown(f"no member could be asked for the permissions ({error}): retry") from error

    def trouble(self) -> str:
        return SILENT_CLUSTER


def row_in(answer: Any, key: bytes) -> PermissionRow | None:
    """Raises PermissionsUnknown if the response does not answer this request."""
    try:
        kvs = answer["kvs"]
        if kvs == []:
            return None
        (kv,) = kvs
        if content_in(kv, "key") != key or type(kv["mod_revision"]) is not int:
            raise ValueError("the response is for another key")
        return PermissionRow(content_in(kv, "value"), kv["mod_revision"])
    except (KeyError, TypeError, ValueError) as error:
        raise PermissionsUnknown(f"unexpected response of a member ({error}): retry") from None
