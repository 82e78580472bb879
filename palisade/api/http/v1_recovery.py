"""/v1/recovery: reports of the recoveries of this node, their progress, and the difference at which the node has caught
up."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from palisade.api.http.request_body import a_number, fields_of, read_json
from palisade.api.http.v1_keys import answer
from palisade.metastore.errors import InvalidRequest
from palisade.recovery.report_json import recoveries_view
from palisade.recovery.status import RecoveryStatus
from palisade.wire.error_codes import BadRequest

CHANGE = {"revisions": a_number}


class RecoveryRoutes:
    """`recovery`: evaluated for every request, since a node opens its vault after its server."""

    def __init__(self, recovery: Callable[[], RecoveryStatus | None]) -> None:
        self._recovery = recovery

    def routes(self) -> list[web.RouteDef]:
        change = web.put("/v1/recovery/catch-up-difference", self.change)
        return [web.get("/v1/recovery", self.recovery, allow_head=False), change]

    async def recovery(self, request: web.Request) -> web.Response:
        """R12."""
        return answer(recoveries_view(self._recovery()))

    async def change(self, request: web.Request) -> web.Response:
        """R4, "changeable at run time": for this process, including a running recovery."""
        found = fields_of(await read_json(request), CHANGE)
        if "revisions" not in found:
            raise BadRequest("the body: revisions is missing: the largest LM - LV at which a node has caught up")
        recovery = self._recovery()
        difference = recovery.difference if recovery is not None else None
        if difference is None:
            raise InvalidRequest("this node has no vault that follows a cluster: ask another node")
        before = difference.chosen
        try:
            difference.value = found["revisions"]
        except ValueError as error:
            raise BadRequest(f"revisions: {error}") from None
        return answer({"catch_up_difference": difference.chosen, "before": before})
