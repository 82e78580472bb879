"""The write and read path of a member with its strict regions; the test releases what is strict."""

from __future__ import annotations

import asyncio

from palisade.metastore.command_codec import encode_command
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.requests import Command
from palisade.metastore.state_machine import MetaStore
from palisade.service.key_values import KeyValues
from palisade.service.pending_write import OwnLease, ReleaseWaiters, StrictResponses
from palisade.service.regions import regions_of
from palisade.service.strict_changes import StrictBatch, StrictLog
from tests.support.fake_group import FakeGroup


class StrictService:
    """`releases` False: nothing is released but by `release`. `has_own`: whether the cluster has keys of its own."""

    def __init__(self, *, releases: bool = True, has_own: bool = True) -> None:
        self.releases, self.has_own = releases, has_own
        self.store = MetaStore(MemoryMap())
        self.log = StrictLog(self.store.bodies, lambda: regions_of(self.store), lambda: self.store.revision)
        self.released = ReleaseWaiters(self.log, asyncio.get_running_loop().time)
        self.released.pass_on(self._committed)
        self.store.listen(self.released)
        self.strict = StrictResponses(self.released, str, lambda: self.has_own, OwnLease())
        self.group = FakeGroup(self.store)
        self.key_values = KeyValues(self.group, self.store, deadline_s=5.0, strict=self.strict)
        self.release(self.store.revision)

    def _committed(self, batch: StrictBatch) -> None:
        if self.releases:
            self.log.release(batch.upto)

    def release(self, revision: int) -> None:
        self.released.release(revision)

    def apply(self, *commands: Command) -> int:
        """What another node has proposed; the revision."""
        self.group.apply([encode_command(each, None) for each in commands])
        return self.store.revision
