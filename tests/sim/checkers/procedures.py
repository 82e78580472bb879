"""Procedures of the catalog end in exactly one of their allowed states, by allowed steps, after PROCEED (F8, F9).

Judged by committed records: each follows the table in `palisade/catalog/procedures.py`, an open one holds a lock and an
ended one none, none continues from PREPARED before that change was released, permissions are not reverted; and at the
end none is open.
"""

from __future__ import annotations

from palisade.catalog import keys
from palisade.catalog.procedure_record import from_bytes
from palisade.catalog.procedures import ENDED, NEXT, Procedure, ProcedureState
from palisade.metastore.results import Event, RevisionEvents
from tests.sim.backups import Base
from tests.sim.node import Host
from tests.sim.world import Checker, World


class Procedures(Checker):
    name = "procedures"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._known: dict[str, Procedure] = {}
        self._locks: dict[bytes, str] = {}
        self._released = 0

    def turned(self, host: Host) -> None:
        if not host.follows:
            released = host.node.fencing.log.released or 0
            self._released = max(self._released, released)

    def killed(self, host: Host) -> None:
        """It may have released a change, and continued after it, in its last turn."""
        self.turned(host)

    def committed(self, events: RevisionEvents) -> None:
        touched = False
        for event in events.events:
            key = event.kv.key
            if key.startswith(keys.LOCKS):
                touched = True
                self._lock(event)
            elif key.startswith(keys.PROCEDURES):
                touched = True
                before, now = self._record(event, events.revision)
                if now is not None:
                    self._judge(before, now)
        if touched:
            self._check_locks()

    def restored(self, base: Base) -> None:
        """Procedures that were open in the backup are open, and hold their locks."""
        for events in base.past:
            for event in events.events:
                if event.kv.key.startswith(keys.LOCKS):
                    self._lock(event)
                elif event.kv.key.startswith(keys.PROCEDURES):
                    self._record(event, events.revision)

    def _lock(self, event: Event) -> None:
        if event.delete:
            self._locks.pop(event.kv.key, None)
        else:
            self._locks[event.kv.key] = event.kv.value.decode()

    def _record(self, event: Event, revision: int) -> tuple[Procedure | None, Procedure | None]:
        """(the known record, the new record)."""
        key = event.kv.key
        id_ = key[len(keys.PROCEDURES) :].decode()
        before = self._known.pop(id_, None)
        if event.delete:
            return before, None
        now = self._known[id_] = from_bytes(key, event.kv.value, revision)
        return before, now

    def _judge(self, before: Procedure | None, now: Procedure) -> None:
        state = now.state
        if before is None:
            self.world.count(f"begun: {now.kind}")
            if state is not ProcedureState.SUBMITTED:
                self.fail(f"{now.id} begins as {state.value}")
            return
        self.world.count(f"procedure: {before.state.value} -> {state.value}")
        if state is ProcedureState.DONE:
            self.world.count(f"procedure done: {now.kind}")
        if state not in NEXT[before.state]:
            self.fail(f"{now.id} went from {before.state.value} to {state.value}")
        if before.state is not ProcedureState.PREPARED:
            return
        if now.operation.keeps and state is not ProcedureState.DONE:
            self.fail(f"{now.id} changed permissions and ended as {state.value}")
        if state in (ProcedureState.DONE, ProcedureState.DESTROYING) and before.revision > self._released:
            self.fail(f"{now.id} went on from revision {before.revision}, and {self._released} is released")

    def _check_locks(self) -> None:
        holders = set(self._locks.values())
        for procedure in self._known.values():
            if (procedure.id in holders) == procedure.ended:
                self.fail(f"{procedure.id} is {procedure.state.value} and holds the locks {sorted(self._locks)}")

    def settled(self) -> None:
        still = [each.id for each in self._known.values() if each.state not in ENDED]
        if still or self._locks:
            self.fail(f"at the end the procedures {still} are open, with the locks {sorted(self._locks)}")
