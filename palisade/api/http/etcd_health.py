"""What etcd answers at its root and clients probe: /version, /health, and the checks behind /livez and /readyz.

Paths, check names, bodies and status codes are etcd's (3.5 and 3.6, `etcdhttp/health.go` and `version.go`). A check of
this node's own, `ready`, comes first in /readyz: it fails for the reasons that the JSON form of /readyz lists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from aiohttp import web

from palisade.base.errors import PalisadeError
from palisade.metastore.requests import Range
from palisade.raftgroup.errors import Unavailable
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues

ETCD_SERVER = "3.4.23"
ETCD_CLUSTER = "3.4.0"
"""The version whose JSON API is served, as `tests/differential` compares it."""

CHECK_S = 2.0
"""How long one check may take."""
NOSPACE = "NOSPACE"
PROBED_KEY = b"\0"
"""Read by the checks. It is in no strict region, so a pending release does not fail them."""

Check = Callable[[], Awaitable[None]]


class EtcdHealth:
    """`not_ready`: the reasons why this node should not get requests now."""

    def __init__(self, service: KeyValues, not_ready: Callable[[], list[str]]) -> None:
        self._service, self._not_ready = service, not_ready
        live: dict[str, Check] = {"serializable_read": self._serializable_read}
        ready: dict[str, Check] = {"ready": self._ready, "data_corruption": self._data_corruption}
        self.live: Mapping[str, Check] = live
        self.ready: Mapping[str, Check] = {**ready, **live, "linearizable_read": self._linearizable_read}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/version", self.version),
            web.get("/health", self.health),
            web.get("/livez/{check}", self.one_of_live),
            web.get("/readyz/{check}", self.one_of_ready),
        ]

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"etcdserver": ETCD_SERVER, "etcdcluster": ETCD_CLUSTER})

    async def health(self, request: web.Request) -> web.Response:
        """`?exclude=NOSPACE` ignores a full store; `?serializable=true` asks this node alone."""
        reason = await self._unhealthy(
            set(request.query.getall("exclude", ())), request.query.get("serializable") == "true"
        )
        shape = {"health": "false" if reason else "true", "reason": reason}
        return web.json_response(shape, status=503 if reason else 200)

    async def one_of_live(self, request: web.Request) -> web.Response:
        return await self._one_of(self.live, request)

    async def one_of_ready(self, request: web.Request) -> web.Response:
        return await self._one_of(self.ready, request)

    async def _one_of(self, checks: Mapping[str, Check], request: web.Request) -> web.Response:
        check = checks.get(request.match_info["check"])
        if check is None:
            raise web.HTTPNotFound
        return await text_of({request.match_info["check"]: check}, request)

    # The checks. Each raises PalisadeError if it fails.

    async def _unhealthy(self, excluded: set[str], serializable: bool) -> str:
        """The reason; empty if there is none."""
        if self._service.store.alarm and NOSPACE not in excluded:
            return f"ALARM {NOSPACE}"
        if not serializable and self._service.group.status().leader is None:
            return "RAFT NO LEADER"
        try:
            await (self._serializable_read() if serializable else self._linearizable_read())
        except PalisadeError as error:
            return f"RANGE ERROR:{error}"
        return ""

    async def _ready(self) -> None:
        reasons = self._not_ready()
        if reasons:
            raise Unavailable("; ".join(reasons))

    async def _data_corruption(self) -> None:
        """Never fails: a node that finds damaged data stops."""

    async def _serializable_read(self) -> None:
        await self._service.range(Range(PROBED_KEY, serializable=True), timeout_s=CHECK_S, caller=THIS_NODE)

    async def _linearizable_read(self) -> None:
        await self._service.range(Range(PROBED_KEY), timeout_s=CHECK_S, caller=THIS_NODE)


async def text_of(checks: Mapping[str, Check], request: web.Request) -> web.Response:
    """The outcome of the checks as etcd's text; with `?verbose` also if all pass. `?exclude=` leaves checks out."""
    excluded = set(request.query.getall("exclude", ()))
    lines = [await _outcome(name, check) for name, check in checks.items() if name not in excluded]
    if any(line.startswith("[-]") for line in lines):
        return _text(lines, 503)
    return _text([*(lines if "verbose" in request.query else ()), "ok"], 200)


async def _outcome(name: str, check: Check) -> str:
    try:
        await check()
    except PalisadeError as error:
        return f"[-]{name} failed: {' '.join(str(error).split())}"
    return f"[+]{name} ok"


def _text(lines: Iterable[str], status: int) -> web.Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(text="".join(f"{line}\n" for line in lines), status=status, headers=headers)
