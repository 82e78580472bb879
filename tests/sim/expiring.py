"""Sets a TTL rule by which every segment has expired, and takes it back, while copies move and queries run (issue 17).

Segments whose last copy was removed meanwhile are lost, unless a store of files has them: their user marks them unused.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from palisade.api.segment_service import OwnSegmentStore
from palisade.catalog.errors import AlreadyThere, NotThere
from palisade.catalog.procedures import ProcedureState
from palisade.catalog.segment import parse_segment
from palisade.client.record_choice import named
from palisade.client.segment_changes import mark_unused
from palisade.segments.names import TRASH
from palisade.segments.retention import DATABASE
from palisade.segments.segment_store import file_of
from tests.sim.checkers.segment_copies import digest_of
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.segment_client import REFUSED, SegmentClient
from tests.sim.segment_states import RECORDS, needed
from tests.support.segment_writer import SOURCE

TTL_MS = 1
"""All intervals are of 1970."""
RETRY_S = 0.3
LOOK_S = 0.5
WAIT_S = 4.0


class Expirer(SegmentClient):
    _number = 0

    async def run(self) -> None:
        settings = self.world.settings
        await self._do("create-database", {"database": DATABASE})
        while self.going():
            await asyncio.sleep(settings.rule_pause_s * self.chance.random())
            await self._do("set-ttl", {"path": DATABASE, "ttl_ms": TTL_MS})
            self.world.count("expiry: rule set")
            await asyncio.sleep(settings.rule_s * self.chance.random())
            await self._do("unset-ttl", {"path": DATABASE})
            self.world.count("expiry: rule unset")

    async def _do(self, kind: str, given: dict[str, Any]) -> None:
        """Repeated until it is done."""
        while True:
            self._number += 1
            id_ = f"e{self.world.epoch}-{self._number}"
            try:
                host = self.chance.choice(self.world.members)
                outcome = await self.ask(host, partial(begin, kind, given, id_))
                if outcome.procedure.state is ProcedureState.DONE and outcome.settled:
                    return
            except (AlreadyThere, NotThere):
                return  # an earlier attempt has done it
            except REFUSED:
                pass
            await asyncio.sleep(RETRY_S)


async def begin(kind: str, given: dict[str, Any], id_: str, node: Any) -> Any:
    return await node.catalog.do(kind, given, id_, WAIT_S)


class LostSegments(SegmentClient):
    """Those of which no whole copy is left anywhere: `mark` marks them unused."""

    def lost(self) -> list[str]:
        state = self.world.checker(SegmentLookups).states.latest
        names = [key.removeprefix(RECORDS).decode() for key in state.rows if key.startswith(RECORDS)]
        return [name for name in names if self._is_lost(name, state.record(name))]

    def _is_lost(self, name: str, record: Any) -> bool:
        if not needed(record) or not record["digest"] or record["digest"] in self.world.segment_files:
            return False
        disks = [host.disk.segments for host in self.world.hosts.values()]
        files = [disk.files.get(file) for disk in disks for file in (file_of(name), TRASH + file_of(name))]
        has_log = any(disk.logs.get(file_of(name)) for disk in disks if file_of(name) not in disk.damaged)
        return not has_log and all(file is None or digest_of(file) != record["digest"] for file in files)

    async def mark(self, node: Any) -> None:
        if names := self.lost():
            await mark_unused(OwnSegmentStore(node.key_values), SOURCE, named([parse_segment(name) for name in names]))
            self.world.count("expiry: lost segment marked unused")
