"""The view of a procedure is its record, as new as promised, and released if it says so (F8).

Checked at the moment at which a node responds, against what is committed and known to be released by then. *Settled* is
the acknowledgement: the end of a procedure is reported as settled when every node shows it or serves nothing, and not
before. A refusal matches the error in the record, or the reason why there is none.
"""

from __future__ import annotations

from palisade.catalog import errors, keys
from palisade.catalog.procedure_record import from_bytes
from palisade.catalog.procedures import Procedure, ProcedureState
from palisade.metastore.results import RevisionEvents
from tests.sim.backups import Base
from tests.sim.node import Host
from tests.sim.seen import CANCEL, LOOK, Answer, Call
from tests.sim.world import Checker, World

UNDONE = (ProcedureState.FAILED, ProcedureState.ROLLED_BACK)


class CatalogAnswers(Checker):
    name = "catalog answers"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._records: dict[str, list[Procedure]] = {}
        """All versions of each record, the newest one last."""
        self._released = 0

    def turned(self, host: Host) -> None:
        self._released = max(self._released, released_at(host))

    def committed(self, events: RevisionEvents) -> None:
        for event in events.events:
            if event.kv.key.startswith(keys.PROCEDURES) and not event.delete:
                record = from_bytes(event.kv.key, event.kv.value, events.revision)
                self._records.setdefault(record.id, []).append(record)

    def restored(self, base: Base) -> None:
        for events in base.past:
            self.committed(events)
        self._released = base.revision

    def answered(self, host: Host, call: Call, since: int, answer: Answer) -> None:
        id_ = call.arguments[0]
        wrong = self._refusal(call, since, answer) if answer.code else self._result(call, since, answer)
        if wrong:
            self.fail(f"{host.id} answers {call.name} of {id_} with {answer}: {wrong}")

    def _result(self, call: Call, since: int, answer: Answer) -> str:
        """The violation; empty if there is none."""
        known = self._records.get(call.arguments[0], [])
        record = next((each for each in known if each.revision == answer.revision), None)
        if record is None or record.state.value != answer.state:
            return f"no such record was committed: {shown(known)}"
        if call.name in (LOOK, CANCEL) and any(answer.revision < each.revision <= since for each in known):
            return f"it had gone on before that was asked: {shown(known)}"
        if answer.settled and not record.ended:
            return "it has not ended"
        released = max([self._released, *map(released_at, self.world.members)])
        if answer.settled and record.revision > released:
            return f"{released} is released"
        self.world.count(f"catalog answer: {'settled' if answer.settled else 'pending'}")
        return ""

    def _refusal(self, call: Call, since: int, answer: Answer) -> str:
        known = self._records.get(call.arguments[0], [])
        there = [each for each in known if each.revision <= since]
        code = answer.code
        self.world.count("catalog answer: refused")
        if code == errors.Busy.code or (code == errors.NoSuchProcedure.code and call.name in (LOOK, CANCEL)):
            return f"there was one already: {shown(there)}" if there else ""
        if code == errors.NotCancellable.code:
            return "" if any(map(stays, known)) else f"nothing stands in the way: {shown(known)}"
        failed = known[-1].failed if known and known[-1].state in UNDONE else None
        if failed is not None and failed.code == code:
            return ""
        return "" if code == errors.BadField.code and not known else f"it did not fail so: {shown(known)}"


def released_at(host: Host) -> int:
    """The revision up to which this node knows all changes to be released; 0: it knows nothing, or is no member."""
    if host.follows or host.node is None:
        return 0
    core, known = host.node.fencing.lease_server.core, host.node.fencing.log.released or 0
    return max(known, core.rr or 0) if core.leads else known


def stays(record: Procedure) -> bool:
    """It cannot be reverted: it has ended, or deletes data, or has changed permissions; or another procedure uses its
    objects."""
    if record.state is ProcedureState.PREPARED:
        return record.operation.keeps or bool(record.made)
    return record.state is not ProcedureState.SUBMITTED


def shown(records: list[Procedure]) -> str:
    return ", ".join(f"{each.state.value} at {each.revision}" for each in records) or "there is none"
